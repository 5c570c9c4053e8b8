import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { createJoiner } from "../../../src/network/connections.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("a connection that breaks before its first line is dropped, and ends nothing else", async () => {
  const refused: object[] = [];
  const join = createJoiner({
    allowed: () => true,
    refused: (fields) => void refused.push(fields),
    clock: fakeClock(),
  });
  const connection = new PassThrough();
  const joined = join(connection);
  connection.destroy(new Error("read ECONNRESET"));
  await joined;
  await turn();
  assert.equal(refused.length, 1);
});
