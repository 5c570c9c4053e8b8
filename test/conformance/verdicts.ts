import type { ListedTest, SuiteName } from "./list.ts";
import type { SuiteOutcome } from "./outcomes.ts";

/** What a listed test came to. */
export interface Verdict {
  readonly test: ListedTest;
  readonly passed: boolean;
  /** How it ended: ginkgo's word, or that it did not run. */
  readonly state: string;
  /** Why it did not pass, in a line. */
  readonly says: string;
}

/** A verdict on each listed test: one that the suite skipped, or does not have, has not passed. */
export function verdictsOn(
  tests: readonly ListedTest[],
  outcomes: ReadonlyMap<SuiteName, SuiteOutcome>,
): readonly Verdict[] {
  return tests.map((test) => {
    const suite = outcomes.get(test.suite);
    const outcome = suite?.tests.get(test.name);
    if (outcome) {
      const { state, says = "" } = outcome;
      return { test, passed: state === "passed", state, says: firstLine(says) };
    }
    return { test, passed: false, state: "not run", says: firstLine(suite?.trouble[0] ?? "") };
  });
}

/** The first line that says something, cut where it is long. */
export function firstLine(text: string): string {
  const line = text.split("\n").find((each) => each.trim() !== "") ?? "";
  const short = line.trim().replaceAll(/\s+/g, " ");
  return short.length > 240 ? `${short.slice(0, 239)}…` : short;
}
