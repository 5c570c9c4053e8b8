import assert from "node:assert/strict";
import { test } from "node:test";
import { createReloading, untilSome } from "../../../src/lib/reloading.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { silent } from "../api/fake-client.ts";

test("reloads a value periodically; after a failure retries sooner and keeps the old value", async () => {
  const clock = fakeClock();
  const reads: number[] = [];
  let answer: () => string = () => "one";
  const value = createReloading({
    name: "value",
    initial: "none",
    read: async () => {
      reads.push(clock.monotonic());
      return Promise.resolve(answer());
    },
    same: Object.is,
    intervalMs: 10_000,
    clock,
    log: silent,
  });
  const stop = new AbortController();
  const running = value.run(stop.signal);
  await clock.advance(0);
  assert.equal(value.current(), "one");
  answer = () => {
    throw new Error("it is away");
  };
  await clock.advance(40_000);
  assert.deepEqual(reads, [0, 10_000, 11_000, 13_000, 17_000, 25_000, 35_000]);
  assert.equal(value.current(), "one");
  let changes = 0;
  value.onChange(() => (changes += 1));
  answer = () => "two";
  await clock.advance(10_000);
  assert.deepEqual([value.current(), changes], ["two", 1]);
  answer = () => {
    throw new Error("it is away again");
  };
  await clock.advance(6_000);
  assert.deepEqual(reads.slice(7), [45_000, 55_000, 56_000]);
  stop.abort();
  await running;
});

test("waits until a value is set", async () => {
  const listeners = new Set<() => void>();
  const state: { current?: string } = {};
  const value = {
    current: () => state.current,
    onChange: (listener: () => void) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
  let resolved = false;
  const done = untilSome(value).then(() => (resolved = true));
  for (const listener of listeners) listener();
  await new Promise(setImmediate);
  assert.deepEqual([resolved, listeners.size], [false, 1]);
  state.current = "set";
  for (const listener of listeners) listener();
  await done;
  assert.equal(listeners.size, 0);
  await untilSome(value);
  assert.equal(listeners.size, 0);
});
