import assert from "node:assert/strict";
import { test } from "node:test";
import { throttle } from "../../../src/lib/throttle.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("makes the first call at once, and combines calls within the interval into one at its end", async () => {
  const clock = fakeClock();
  const calls: number[] = [];
  const call = throttle(() => calls.push(clock.monotonic()), 1000, clock);
  call();
  call();
  await clock.advance(400);
  call();
  assert.deepEqual(calls, [0]);
  await clock.advance(600);
  assert.deepEqual(calls, [0, 1000]);
  await clock.advance(999);
  call();
  assert.equal(calls.length, 2);
  await clock.advance(1);
  assert.deepEqual(calls, [0, 1000, 2000]);
  await clock.advance(5000);
  call();
  assert.deepEqual(calls, [0, 1000, 2000, 7000]);
  assert.equal(clock.pending, 0);
});
