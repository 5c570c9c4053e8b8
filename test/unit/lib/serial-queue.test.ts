import assert from "node:assert/strict";
import { test } from "node:test";
import { createSerialQueue } from "../../../src/lib/serial-queue.ts";

test("handles items one at a time, and is not idle until the last item is done", async () => {
  const inbox = createSerialQueue<{ readonly name: string }>();
  const stop = new AbortController();
  const said: string[] = [];
  const turns = Promise.withResolvers<void>();
  const work = {
    async handle({ name }: { readonly name: string }) {
      said.push(`begin ${name}`);
      await turns.promise;
      said.push(`end ${name}`);
    },
    handled: ({ name }: { readonly name: string }) =>
      void said.push(`${name} handled, ${inbox.isIdle() ? "none" : "more"} left`),
  };
  const done = inbox.run(work, stop.signal);
  inbox.push({ name: "a" });
  inbox.push({ name: "b" });
  await new Promise(setImmediate);
  assert.deepEqual([said, inbox.isIdle()], [["begin a"], false]);
  turns.resolve();
  while (!inbox.isIdle()) await new Promise(setImmediate);
  assert.deepEqual(said, ["begin a", "end a", "a handled, more left", "begin b", "end b", "b handled, none left"]);
  stop.abort();
  await done;
});
