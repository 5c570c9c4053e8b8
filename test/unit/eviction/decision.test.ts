import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeSignal } from "../../../src/eviction/signals.ts";
import type { Threshold } from "../../../src/eviction/thresholds.ts";
import { createDecider } from "../../../src/eviction/node-pressure.ts";

const hard = (signal: NodeSignal, minReclaim?: string): Threshold => ({
  signal,
  value: "100",
  graceMs: 0,
  ...(minReclaim !== undefined && { minReclaim }),
});
const soft = (signal: NodeSignal): Threshold => ({ signal, value: "200", graceMs: 60_000 });

/** Decides over these thresholds: available amounts by signal, and the time. */
function rounds(thresholds: readonly Threshold[]) {
  const decider = createDecider(300_000);
  return (nowMs: number, available: Partial<Record<NodeSignal, number>>) => {
    const seen = new Map(
      Object.entries(available).map(
        ([name, free]) => [name as NodeSignal, { available: free, capacity: 1000 }] as const,
      ),
    );
    const { pressure, metThresholds } = decider.decide(thresholds, seen, nowMs);
    return { pressure, due: metThresholds.map(({ signal, value }) => `${signal}<${value}`) };
  };
}

test("a hard threshold evicts at once and a soft one after its grace period, but both set the condition at once", () => {
  const round = rounds([soft("memory.available"), hard("memory.available")]);
  assert.deepEqual(round(0, { "memory.available": 150 }), {
    pressure: { memory: true, disk: false, pid: false },
    due: [],
  });
  assert.deepEqual(round(59_999, { "memory.available": 150 }).due, []);
  assert.deepEqual(round(60_000, { "memory.available": 150 }).due, ["memory.available<200"]);
  assert.deepEqual(round(60_001, { "memory.available": 99 }).due, ["memory.available<200", "memory.available<100"]);
});

test("the grace period of a soft threshold starts again if the threshold was not met in between", () => {
  const round = rounds([soft("nodefs.available")]);
  round(0, { "nodefs.available": 1 });
  round(30_000, { "nodefs.available": 500 });
  round(50_000, { "nodefs.available": 1 });
  assert.deepEqual(round(60_000, { "nodefs.available": 1 }).due, []);
  assert.deepEqual(round(110_000, { "nodefs.available": 1 }).due, ["nodefs.available<200"]);
});

test("a threshold stays met until its minimum reclaim is reached", () => {
  const round = rounds([hard("nodefs.available", "50")]);
  assert.deepEqual(round(0, { "nodefs.available": 120 }).due, [], "never crossed");
  assert.equal(round(1, { "nodefs.available": 99 }).due.length, 1);
  assert.equal(round(2, { "nodefs.available": 149 }).due.length, 1);
  assert.equal(round(3, { "nodefs.available": 150 }).due.length, 0);
});

test("memory takes precedence over all other signals", () => {
  const round = rounds([hard("nodefs.available"), hard("pid.available"), hard("allocatableMemory.available")]);
  const { due, pressure } = round(0, { "nodefs.available": 1, "pid.available": 1, "allocatableMemory.available": 1 });
  assert.equal(due[0], "allocatableMemory.available<100");
  assert.deepEqual(pressure, { memory: true, disk: true, pid: true });
});

test("a condition stays set until its signal has been clear for the transition period", () => {
  const round = rounds([hard("imagefs.inodesFree")]);
  assert.equal(round(0, { "imagefs.inodesFree": 1 }).pressure.disk, true);
  assert.equal(round(299_999, { "imagefs.inodesFree": 500 }).pressure.disk, true);
  assert.equal(round(300_000, { "imagefs.inodesFree": 500 }).pressure.disk, false);
});
