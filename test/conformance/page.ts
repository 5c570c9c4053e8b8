import { markdownTable } from "../bench/table.ts";
import { type Limit, causeOf } from "./limits.ts";
import { areaOf, suiteNames } from "./list.ts";
import type { Verdict } from "./verdicts.ts";

/** Width of a page's lines, in characters. */
const columns = 120;
/** Maximum length of a test's name or message that is kept on one line, in characters. */
const longestWord = 240;

/** Result of a whole run with one provider. */
export interface Score {
  readonly verdicts: readonly Verdict[];
  readonly limits: readonly Limit[];
  /** YYYY-MM-DD. */
  readonly date: string;
  readonly minutes: number;
  /** Machine and versions. */
  readonly madeOn: string;
}

/** One provider's part of docs/conformance.md, in Markdown. */
export function partOf({ verdicts, limits, date, minutes, madeOn }: Score): string {
  const passed = `**${ratio(verdicts)}** passed on ${date}, in ${minutes} minutes on ${madeOn}.`;
  const failed = verdicts.filter((verdict) => !verdict.passed);
  if (failed.length === 0) return [passed, tableOf(verdicts)].join("\n\n");
  return [passed, tableOf(verdicts), "Not passed:", failureList(failed, limits)].join("\n\n");
}

/** Failed tests grouped by their cause, as a nested list. */
function failureList(failed: readonly Verdict[], limits: readonly Limit[]): string {
  const groups = Map.groupBy(failed, (verdict) => explanation(verdict, limits));
  return [...groups]
    .flatMap(([why, verdicts]) => [item("", `${why}:`), ...verdicts.map((verdict) => item("  ", failure(verdict)))])
    .join("\n");
}

/** Passed and total tests, one row per area and one column per suite. */
export function tableOf(verdicts: readonly Verdict[]): string {
  const areas = [...new Set(verdicts.map(({ test }) => areaOf(test)))].toSorted();
  const cells = (chosen: readonly Verdict[]): string[] =>
    suiteNames.map((suite) => ratio(chosen.filter(({ test }) => test.suite === suite)));
  const rows = areas.map((area) => [area, ...cells(verdicts.filter(({ test }) => areaOf(test) === area))]);
  return markdownTable(["area", ...suiteNames], [...rows, ["all", ...cells(verdicts)]]);
}

/** A failed test and its cause, in one line. */
export function failureLine(verdict: Verdict, limits: readonly Limit[]): string {
  return `- ${failure(verdict)}; ${explanation(verdict, limits)}`;
}

function failure({ test, state, says }: Verdict): string {
  return `${test.suite} ${verbatim(test.name)}: ${state}${says && ` (${verbatim(says)})`}`;
}

function explanation({ test }: Verdict, limits: readonly Limit[]): string {
  const cause = causeOf(limits, test);
  return cause ? `impossible here: ${cause}` : "the cause is not known yet";
}

/** Words of a line of Markdown; code is one word, unless it is too long for a line. */
function wordsOf(text: string): readonly string[] {
  const words = text.match(/(?:`` .+? ``|`[^`]*`|[^\s`])+/g) ?? [];
  return words.flatMap((word) => (word.length > longestWord ? word.split(" ") : [word]));
}

/** A list item wrapped to the columns of a page. A line begins with a word that starts no Markdown block of its own. */
function item(indent: string, text: string): string {
  const lines: string[] = [];
  let line = `${indent}-`;
  for (const word of wordsOf(text)) {
    if (line.length + 1 + word.length > columns && /^[\p{L}[(`]/u.test(word)) {
      lines.push(line);
      line = `${indent}  ${word}`;
    } else line += ` ${word}`;
  }
  return [...lines, line].join("\n");
}

/** Text that Markdown renders unchanged. */
function verbatim(text: string): string {
  return text.includes("`") ? `\`\` ${text.replaceAll("``", "` `")} \`\`` : `\`${text}\``;
}

function ratio(verdicts: readonly Verdict[]): string {
  if (verdicts.length === 0) return "";
  return `${verdicts.filter(({ passed }) => passed).length} of ${verdicts.length}`;
}
