import type { TestEvent } from "node:test/reporters";

/** One test that has ended: a line of JSON each. */
export interface Outcome {
  readonly title: string;
  readonly passed: boolean;
  /** In a hook before the tests. */
  readonly inSetUp: boolean;
  /** First line of the error, where it failed. */
  readonly message: string;
}

/** Writes the tests that ran and how each ended; suites only where it is their set-up that failed. */
// oxlint-disable-next-line import/no-default-export -- so the runner finds a reporter.
export default async function* outcomes(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of source) {
    if (event.type === "test:pass") {
      const { name, details, skip } = event.data;
      if (details.type !== "suite" && skip === undefined)
        yield lineOf({ title: name, passed: true, inSetUp: false, message: "" });
    }
    if (event.type === "test:fail") {
      const { name, details } = event.data;
      const { failureType, cause } = details.error as { failureType?: string; cause?: unknown };
      // A suite fails for its tests, too, and those for their suite's set-up.
      if (failureType === "subtestsFailed" || failureType === "cancelledByParent") continue;
      const text = cause instanceof Error ? cause.message : String(cause);
      const message = text.split("\n").find((line) => line.trim() !== "") ?? "";
      yield lineOf({ title: name, passed: false, inSetUp: failureType === "hookFailed", message });
    }
  }
}

function lineOf(outcome: Outcome): string {
  return `${JSON.stringify(outcome)}\n`;
}
