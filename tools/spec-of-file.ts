import { Readable } from "node:stream";
import { spec, type TestEvent } from "node:test/reporters";
import type { EventData } from "node:test";

/** The counts that the runner adds, which of one file say nothing. */
const counts = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

/** How a line begins that says why a test failed. */
export const reasonMark = "==> reason: ";

/** Longer errors are cut, characters. */
const longestReason = 400;

/** A reporter of Node's test runner: `spec`, without its counts.
 *  @see https://nodejs.org/api/test.html#custom-reporters */
// oxlint-disable-next-line import/no-default-export -- so the runner finds a reporter.
export default async function* specOfFile(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const reasons: string[] = [];
  for await (const text of Readable.from(told(events, reasons)).pipe(new spec())) yield String(text);
  for (const reason of reasons) yield `${reason}\n`;
}

async function* told(events: AsyncIterable<TestEvent>, reasons: string[]): AsyncGenerator<TestEvent> {
  for await (const event of events) {
    const reason = event.type === "test:fail" ? reasonOf(event.data) : undefined;
    if (reason !== undefined) reasons.push(reason);
    if (event.type !== "test:diagnostic" || !counts.test(event.data.message)) yield event;
  }
}

/** A failed test and its error in one line; nothing for one that failed by a test below it. */
function reasonOf({ name, details: { error } }: EventData.TestFail): string | undefined {
  const cause: unknown = error.cause ?? error;
  if ("failureType" in error && error.failureType === "subtestsFailed") return undefined;
  const text = (cause instanceof Error ? cause.message : String(cause)).replaceAll(/\s+/g, " ");
  return `${reasonMark}${name}: ${text.slice(0, longestReason)}`;
}
