import assert from "node:assert/strict";
import { test } from "node:test";
import { createBoundedMap } from "../../../src/lib/bounded-map.ts";
import { createRateLimit } from "../../../src/lib/token-bucket.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("allows a burst, then a fixed number of calls per second, in order", async () => {
  const clock = fakeClock();
  const limit = createRateLimit(clock, { qps: 10, burst: 3 });
  const passed: number[] = [];
  for (let i = 0; i < 6; i++) void limit.wait().then(() => passed.push(i));
  await clock.advance(0);
  assert.deepEqual(passed, [0, 1, 2]);
  await clock.advance(100);
  assert.deepEqual(passed, [0, 1, 2, 3]);
  await clock.advance(200);
  assert.deepEqual(passed, [0, 1, 2, 3, 4, 5]);
});

test("gives back the token of a caller that stops waiting", async () => {
  const clock = fakeClock();
  const limit = createRateLimit(clock, { qps: 1, burst: 1 });
  await limit.wait();
  const stop = new AbortController();
  const waiting = limit.wait(stop.signal);
  stop.abort();
  await assert.rejects(waiting);
  let passed = false;
  void limit.wait().then(() => (passed = true));
  await clock.advance(1_000);
  assert.equal(passed, true);
});

test("takes a token without waiting, or returns the time until a token is available", async () => {
  const clock = fakeClock();
  const limit = createRateLimit(clock, { qps: 10, burst: 2 });
  assert.deepEqual([limit.take(), limit.take(), limit.take(), limit.take()], [0, 0, 100, 100]);
  await clock.advance(100);
  assert.deepEqual([limit.take(), limit.take()], [0, 100]);
});

test("a bounded map drops the least recently used entry", () => {
  const map = createBoundedMap<number>(2);
  map.set("a", 1);
  map.set("b", 2);
  assert.equal(map.get("a"), 1);
  map.set("c", 3);
  assert.deepEqual([map.get("a"), map.get("b"), map.get("c")], [1, undefined, 3]);
});
