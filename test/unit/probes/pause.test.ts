import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { createPause } from "../../../src/probes/worker.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("a wait ends by timeout, wake-up or signal; an earlier wake-up counts, one during an uninterruptible wait does not", async () => {
  const clock = fakeClock();
  const stop = new AbortController();
  const pause = createPause(clock, stop.signal);
  const ended: string[] = [];
  const told = (name: string, wait: Promise<void>) => wait.then(() => ended.push(name));

  const timed = told("timed", pause.wait(10));
  await clock.advance(10);
  await timed;
  pause.poke();
  await told("poked before", pause.wait(10));
  const poked = told("poked", pause.wait(undefined));
  pause.poke();
  await poked;
  const firm = told("firm", pause.waitUninterrupted(10));
  pause.poke();
  await clock.advance(9);
  assert.deepEqual(ended, ["timed", "poked before", "poked"]);
  await clock.advance(1);
  await firm;
  const last = told("aborted", pause.wait(10));
  await clock.advance(9);
  assert.equal(getEventListeners(stop.signal, "abort").length, 1);
  stop.abort();
  await last;
  await told("after", pause.wait(undefined));
  assert.deepEqual(ended, ["timed", "poked before", "poked", "firm", "aborted", "after"]);
  assert.equal(clock.pending, 0);
});
