import { markdownTable } from "../bench/table.ts";
import { type Limit, causeOf } from "./limits.ts";
import { areaOf, suiteNames } from "./list.ts";
import type { Verdict } from "./verdicts.ts";

/** What a whole run with a provider came to. */
export interface Score {
  readonly verdicts: readonly Verdict[];
  readonly limits: readonly Limit[];
  /** YYYY-MM-DD. */
  readonly date: string;
  readonly minutes: number;
  /** What took part, and its versions. */
  readonly madeOn: string;
}

/** A provider's part of docs/conformance.md, in Markdown. */
export function partOf({ verdicts, limits, date, minutes, madeOn }: Score): string {
  const passed = `**${ratio(verdicts)}** passed on ${date}, in ${minutes} minutes on ${madeOn}.`;
  const failed = verdicts.filter((verdict) => !verdict.passed);
  if (failed.length === 0) return [passed, tableOf(verdicts)].join("\n\n");
  return [
    passed,
    tableOf(verdicts),
    "Not passed:",
    failed.map((verdict) => failureLine(verdict, limits)).join("\n"),
  ].join("\n\n");
}

/** Passed of run, a row for each area and a column for each suite. */
export function tableOf(verdicts: readonly Verdict[]): string {
  const areas = [...new Set(verdicts.map(({ test }) => areaOf(test)))].toSorted();
  const cells = (chosen: readonly Verdict[]): string[] =>
    suiteNames.map((suite) => ratio(chosen.filter(({ test }) => test.suite === suite)));
  const rows = areas.map((area) => [area, ...cells(verdicts.filter(({ test }) => areaOf(test) === area))]);
  return markdownTable(["area", ...suiteNames], [...rows, ["all", ...cells(verdicts)]]);
}

/** A test that did not pass, with what is known of it. */
export function failureLine({ test, state, says }: Verdict, limits: readonly Limit[]): string {
  const cause = causeOf(limits, test);
  const why = cause ? `impossible here: ${cause}` : "the cause is not known yet";
  return `- ${test.suite} ${verbatim(test.name)}: ${state}${says && ` (${verbatim(says)})`}; ${why}`;
}

/** A line as Markdown shows it unchanged. */
function verbatim(text: string): string {
  return text.includes("`") ? `\`\` ${text.replaceAll("``", "` `")} \`\`` : `\`${text}\``;
}

function ratio(verdicts: readonly Verdict[]): string {
  if (verdicts.length === 0) return "";
  return `${verdicts.filter(({ passed }) => passed).length} of ${verdicts.length}`;
}
