import assert from "node:assert/strict";
import { test } from "node:test";
import { createSlowMeasurement } from "../../../../../providers/docker/client/slow-measurement.ts";
import { createLogger } from "../../../../../src/lib/log.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

const { signal } = new AbortController();

function slowly(readMs: number, fails: () => boolean = () => false) {
  const clock = fakeClock(0);
  let reads = 0;
  const reading = createSlowMeasurement({
    what: "something",
    read: async (until) => {
      const value = ++reads;
      await clock.sleep(readMs, until);
      if (fails()) throw new Error("not now");
      return value;
    },
    clock,
    log: createLogger(-1),
  });
  const ask = async (advanceMs: number) => {
    const asked = reading(signal);
    await clock.advance(advanceMs);
    return asked;
  };
  return { clock, reading, ask, reads: () => reads };
}

test("waits for a quick measurement, shares it, and reuses it for half a minute", async () => {
  const { clock, reading, ask, reads } = slowly(10);
  const both = Promise.all([reading(signal), reading(signal)]);
  await clock.advance(10);
  assert.deepEqual(await both, [
    { value: 1, at: 10 },
    { value: 1, at: 10 },
  ]);
  await clock.advance(29_000);
  assert.equal((await ask(0))?.value, 1);
  await clock.advance(1_500);
  assert.equal((await ask(10))?.value, 2);
  assert.equal(reads(), 2);
  assert.equal(clock.pending, 2, "only the deadlines of two readings that ended are left");
});

test("waits one second for a slow measurement, serves it to later callers, and delays the next one", async () => {
  const { clock, ask, reads } = slowly(10_000);
  assert.equal(await ask(1_000), undefined);
  assert.equal(await ask(1_000), undefined);
  await clock.advance(8_000);
  assert.equal((await ask(0))?.value, 1);
  await clock.advance(199_000);
  assert.equal((await ask(0))?.value, 1);
  await clock.advance(2_000);
  assert.equal((await ask(1_000))?.value, 1, "the last known");
  assert.equal(reads(), 2);
});

test("keeps the last measurement when one fails, and retries", async () => {
  let fails = false;
  const { clock, ask } = slowly(10, () => fails);
  await ask(10);
  fails = true;
  await clock.advance(31_000);
  assert.equal((await ask(10))?.value, 1);
  fails = false;
  await clock.advance(31_000);
  assert.equal((await ask(10))?.value, 3);
});

test("continues the measurement when a caller aborts", async () => {
  const { clock, reading, ask } = slowly(500);
  const stop = new AbortController();
  const given = reading(stop.signal);
  stop.abort();
  await assert.rejects(given, { code: "cancelled" });
  await clock.advance(500);
  assert.equal((await ask(0))?.value, 1);
});
