import { type ListedTest, parseList, whole } from "../list.ts";
import { firstLine } from "../verdicts.ts";
import type { Provider } from "../options.ts";
import type { Attempts, RunRecord } from "./records.ts";

/** How a listed test ended with graftlet, at the last attempt. */
export interface Result extends ListedTest {
  readonly state: string;
  /** Why it did not pass, in a line. */
  readonly says: string;
}

/** The newest result of each test that graftlet has run. @param committed what is known from other machines. */
export function resultsOf(
  attempts: Attempts,
  committed: readonly Result[],
  listed: readonly ListedTest[],
): readonly Result[] {
  const earlier = new Map(committed.map((result) => [whole(result), result]));
  return listed.flatMap((test) => {
    const last = attempts.get(whole(test))?.at(-1);
    if (last === undefined) return earlier.get(whole(test)) ?? [];
    return { suite: test.suite, name: test.name, state: last.state, says: firstLine(last.says ?? "") };
  });
}

/** The attempt that a committed result speaks of, so that another machine goes on from it. How long it took is not known. */
export function attemptIn({ suite, name, state, says }: Result): RunRecord {
  return { suite, name, state, run: "committed 1", seconds: 0, ...(says !== "" && { says }) };
}

/** Results as their file has them: suite, name, state and message. */
export function resultsText(provider: Provider, results: readonly Result[]): string {
  const lines = results.map(({ suite, name, state, says }) => [suite, name, state, says].join("\t").trimEnd());
  return [`# How graftlet (${provider}) does in the candidates that the kubelet passes.`, ...lines.toSorted(), ""].join(
    "\n",
  );
}

/** Reads a file of results. @throws as `parseList`. */
export function parseResults(text: string, source: string): readonly Result[] {
  const rest = text.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("#"));
  return parseList(text, source).map((test, index) => {
    const [, , state = "", says = ""] = rest[index]?.split("\t") ?? [];
    return { ...test, state, says };
  });
}
