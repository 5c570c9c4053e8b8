import assert from "node:assert/strict";
import { test } from "node:test";
import { createDialledConnections } from "../../../../../providers/ssh/reverse/dialled.ts";
import { abortError } from "../../../../../src/lib/errors.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

test("who has stopped waiting is told so at once, also where nobody has dialled in", async () => {
  const connections = createDialledConnections("edge", fakeClock());
  const over = new AbortController();
  const waiting = connections.open(over.signal);
  over.abort();
  await assert.rejects(waiting, { message: abortError(over.signal).message });
  await assert.rejects(connections.open(over.signal), { message: abortError(over.signal).message });
});
