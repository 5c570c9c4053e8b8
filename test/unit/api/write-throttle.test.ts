import assert from "node:assert/strict";
import { test } from "node:test";
import { createWriteThrottle } from "../../../src/api/write-throttle.ts";
import { fakeClock } from "../../fakes/clock.ts";

const { signal } = new AbortController();

function start(count: number) {
  const clock = fakeClock();
  const throttle = createWriteThrottle(clock);
  const passed: number[] = [];
  const ask = (name: number, stop = signal) => throttle.wait(stop).then(() => void passed.push(name));
  const askAll = () => Array.from({ length: count }, (_, name) => ask(name));
  return { clock, throttle, passed, ask, askAll };
}

test("does not throttle while writes succeed", async () => {
  const { clock, throttle, passed, askAll } = start(50);
  throttle.ended(true);
  await Promise.all(askAll());
  assert.equal(passed.length, 50);
  assert.equal(clock.pending, 0);
});

test("writes one at a time, in order, after a write that the server could not accept", async () => {
  const { clock, throttle, passed, askAll } = start(50);
  throttle.ended(false);
  const all = Promise.all(askAll());
  for (let second = 1; second <= 10; second++) {
    const before = passed.length;
    await clock.advance(1_000);
    assert.ok(passed.length - before <= 3, `${passed.length - before} in a second`);
    throttle.ended(false);
  }
  assert.deepEqual(
    passed,
    passed.map((_, index) => index),
  );
  assert.ok(passed.length >= 20);
  const before = passed.length;
  for (let done = before - 1; done < passed.length && passed.length < 50; done++) {
    throttle.ended(true);
    await clock.advance(0);
  }
  await all;
  assert.equal(passed.length, 50, "once they are taken all the others go, without a pause");
  assert.equal(clock.pending, 0);
});

test("each success lets through a growing number of writes; a failure holds back the rest", async () => {
  const { clock, throttle, passed, askAll, ask } = start(50);
  throttle.ended(false);
  void askAll();
  const wentOn = async (well: boolean) => {
    const before = passed.length;
    throttle.ended(well);
    await clock.advance(0);
    return passed.length - before;
  };
  assert.deepEqual([await wentOn(true), await wentOn(true), await wentOn(true)], [1, 2, 4]);
  assert.deepEqual([await wentOn(false), await wentOn(true), await wentOn(false)], [0, 1, 0]);
  assert.equal(passed.length, 8);
  void ask(50);
  await clock.advance(500);
  assert.equal(passed.length, 9, "late ones wait for their turn");
});

test("a cancelled caller leaves the queue", async () => {
  const { clock, throttle, passed, ask } = start(0);
  throttle.ended(false);
  const stop = new AbortController();
  const gone = assert.rejects(ask(0, stop.signal), { code: "cancelled" });
  const stays = ask(1);
  stop.abort();
  await gone;
  await clock.advance(500);
  await stays;
  assert.deepEqual(passed, [1]);
  await assert.rejects(throttle.wait(stop.signal), { code: "cancelled" });
});

test("a write in the middle of an interval waits only for the rest of it", async () => {
  const { clock, throttle, passed, ask } = start(0);
  throttle.ended(false);
  await clock.advance(10_000);
  void ask(0);
  await clock.advance(0);
  void ask(1);
  await clock.advance(100);
  assert.deepEqual(passed, [0]);
  await clock.advance(400);
  assert.deepEqual(passed, [0, 1]);
});
