import assert from "node:assert/strict";
import { test } from "node:test";
import { createWorkersService } from "../../../src/sync/pod-workers.ts";
import { fakeClock } from "../../fakes/clock.ts";

function rig(idle: () => Promise<void>) {
  const clock = fakeClock();
  const passes = new AbortController();
  const stop = new AbortController();
  const ended: number[] = [];
  const done = createWorkersService({ idle }, passes, clock)
    .run(stop.signal)
    .then(() => ended.push(clock.monotonic()));
  return { clock, passes, stop, ended, done };
}

test("at shutdown, aborts the passes and waits for the workers", async () => {
  const idle = Promise.withResolvers<void>();
  const { clock, passes, stop, ended, done } = rig(() => idle.promise);
  await clock.advance(5_000);
  assert.equal(passes.signal.aborted, false);
  stop.abort();
  await clock.advance(3_000);
  assert.deepEqual([passes.signal.aborted, ended], [true, []]);
  idle.resolve();
  await done;
  assert.equal(clock.pending, 0);
});

test("does not wait longer than twenty seconds for a call to the runtime", async () => {
  const { clock, stop, ended } = rig(() => new Promise(() => undefined));
  stop.abort();
  await clock.advance(19_999);
  assert.deepEqual(ended, []);
  await clock.advance(1);
  assert.deepEqual(ended, [20_000]);
});
