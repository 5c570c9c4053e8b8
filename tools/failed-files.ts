import { relative } from "node:path";
import type { TestEvent } from "node:test/reporters";

/** A reporter of Node's test runner: the files in which a test failed, a line each, once all have run.
 *  @see https://nodejs.org/api/test.html#custom-reporters */
// oxlint-disable-next-line import/no-default-export -- so the runner finds a reporter.
export default async function* failedFiles(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const files = new Set<string>();
  // A file that broke off is a test of its own, with its path for a name.
  for await (const event of events)
    if (event.type === "test:fail") files.add(relative(process.cwd(), event.data.file ?? event.data.name));
  for (const file of files) yield `${file}\n`;
}
