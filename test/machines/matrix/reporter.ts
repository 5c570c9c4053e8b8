import type { EventData } from "node:test";
import type { TestEvent } from "node:test/reporters";
import type { Ended } from "./results.ts";

/** Longer errors are cut, characters. */
const longestReason = 600;

/** A reporter of Node's test runner: a line of JSON for the end of each test, and for a suite whose preparation failed.
 *  @see https://nodejs.org/api/test.html#custom-reporters */
// oxlint-disable-next-line import/no-default-export -- so the runner finds a reporter.
export default async function* endsOfTests(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of events) {
    const ended = endedBy(event);
    if (ended) yield `${JSON.stringify(ended)}\n`;
  }
}

function endedBy(event: TestEvent): Ended | undefined {
  if (event.type !== "test:pass" && event.type !== "test:fail") return undefined;
  const { name, details } = event.data;
  if (details.type === "suite") return hookFailure(event.data);
  return event.type === "test:pass"
    ? { name, passed: true }
    : { name, passed: false, says: reasonOf(event.data.details.error) };
}

/** Why the tests of a suite were not begun, if that is so. */
function hookFailure({ name, details }: EventData.TestPass | EventData.TestFail): Ended | undefined {
  const { error } = details as Partial<EventData.TestFail["details"]>;
  if (!error || !("failureType" in error) || error.failureType !== "hookFailed") return undefined;
  return { name: `${name}: preparation`, passed: false, says: reasonOf(error) };
}

function reasonOf(error: Error): string {
  const cause: unknown = error.cause ?? error;
  const text = cause instanceof Error ? cause.message : String(cause);
  return text.replaceAll(/\s+/g, " ").slice(0, longestReason);
}
