import { Readable } from "node:stream";
import { spec, type TestEvent } from "node:test/reporters";

/** The counts that the runner adds, which of one file say nothing. */
const counts = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

/** A reporter of Node's test runner: `spec`, without its counts.
 *  @see https://nodejs.org/api/test.html#custom-reporters */
// oxlint-disable-next-line import/no-default-export -- so the runner finds a reporter.
export default async function* specOfFile(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const text of Readable.from(told(events)).pipe(new spec())) yield String(text);
}

async function* told(events: AsyncIterable<TestEvent>): AsyncGenerator<TestEvent> {
  for await (const event of events)
    if (event.type !== "test:diagnostic" || !counts.test(event.data.message)) yield event;
}
