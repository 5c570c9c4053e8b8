import assert from "node:assert/strict";
import { test } from "node:test";
import { noNode } from "../../../src/api/absent.ts";
import { withFirstListTimeout } from "../../../src/api/listers.ts";
import { fakeClock } from "../../fakes/clock.ts";

const never = new AbortController().signal;

test("waits at most the given time for the Node to be listed for the first time", async () => {
  const clock = fakeClock();
  const done: string[] = [];
  const silent = withFirstListTimeout({ ...noNode, ready: () => new Promise(() => undefined) }, 2_000, clock);
  void silent.ready(never).then(() => done.push("given up"));
  await clock.advance(1_999);
  assert.deepEqual(done, []);
  await clock.advance(1);
  assert.deepEqual(done, ["given up"]);
});

test("stops waiting when the first list has arrived or the signal aborts", async () => {
  await withFirstListTimeout(noNode, 2_000, fakeClock()).ready(never);
  const stop = new AbortController();
  const waiting = withFirstListTimeout({ ...noNode, ready: () => new Promise(() => undefined) }, 2_000, fakeClock());
  const ended = waiting.ready(stop.signal);
  stop.abort();
  await ended;
});
