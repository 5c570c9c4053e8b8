import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeSignal, SignalObservation } from "../../../src/eviction/signals.ts";
import {
  thresholdsMet,
  type EvictionSettings,
  type Threshold,
  parseThresholds,
  withContainerThresholds,
} from "../../../src/eviction/thresholds.ts";

const settings = (change: Partial<EvictionSettings> = {}): EvictionSettings => ({
  evictionHard: {},
  evictionSoft: {},
  evictionSoftGracePeriod: {},
  evictionMinimumReclaim: {},
  enforceNodeAllocatable: ["pods"],
  ...change,
});
const names = (thresholds: readonly Threshold[]) =>
  thresholds.map(({ signal, value, graceMs }) => `${signal}<${value}${graceMs > 0 ? ` for ${graceMs}` : ""}`);
const seen = (all: Readonly<Record<string, SignalObservation>>) =>
  new Map(Object.entries(all) as (readonly [NodeSignal, SignalObservation])[]);

test("applies the hard memory threshold to allocatable memory as well if node allocatable is enforced", () => {
  const given = {
    evictionHard: { "memory.available": "100Mi", "nodefs.available": "10%" },
    evictionSoft: { "memory.available": "200Mi" },
    evictionSoftGracePeriod: { "memory.available": 90_000 },
  };
  assert.deepEqual(names(parseThresholds(settings(given))), [
    "memory.available<100Mi",
    "nodefs.available<10%",
    "memory.available<200Mi for 90000",
    "allocatableMemory.available<100Mi",
  ]);
  const unheld = parseThresholds(settings({ ...given, enforceNodeAllocatable: [] }));
  assert.ok(!names(unheld).some((name) => name.startsWith("allocatable")));
});

test("drops thresholds of 0 % and 100 %, and unknown signals", () => {
  const evictionHard = { "memory.available": "0%", "nodefs.available": "100%", "imagefs.available": "1%", odd: "1" };
  assert.deepEqual(names(parseThresholds(settings({ evictionHard }))), ["imagefs.available<1%"]);
});

test("replaces containerfs thresholds with those of the file system it is actually on", () => {
  const configured = parseThresholds(
    settings({
      evictionHard: { "nodefs.available": "10%", "imagefs.available": "15%", "containerfs.available": "50%" },
    }),
  );
  const containers = (dedicatedImageFs: boolean, splitContainerFs: boolean) =>
    names(withContainerThresholds(configured, { dedicatedImageFs, splitContainerFs })).filter((name) =>
      name.startsWith("con"),
    );
  assert.deepEqual(containers(false, false), ["containerfs.available<10%"]);
  assert.deepEqual(containers(true, false), ["containerfs.available<15%"]);
  assert.deepEqual(containers(true, true), ["containerfs.available<10%"]);
});

test("a threshold is met only below its value, and never without an observation", () => {
  const [bytes, share] = parseThresholds(
    settings({ evictionHard: { "memory.available": "100", "nodefs.inodesFree": "5%" }, enforceNodeAllocatable: [] }),
  );
  assert.ok(bytes && share);
  const now = (one: Threshold, available: number) =>
    thresholdsMet([one], seen({ [one.signal]: { available, capacity: 1000 } }), { reclaimed: false }).length > 0;
  assert.deepEqual([now(bytes, 100), now(bytes, 99)], [false, true]);
  assert.deepEqual([now(share, 50), now(share, 49)], [false, true]);
  assert.deepEqual(thresholdsMet([bytes], new Map(), { reclaimed: false }), []);
});

test("adds the minimum reclaim to the threshold's value", () => {
  const [one] = parseThresholds(
    settings({
      evictionHard: { "nodefs.available": "100" },
      evictionMinimumReclaim: { "nodefs.available": "10%" },
    }),
  );
  assert.ok(one);
  const at = (available: number, reclaimed: boolean) =>
    thresholdsMet([one], seen({ "nodefs.available": { available, capacity: 500 } }), { reclaimed }).length > 0;
  assert.deepEqual([at(149, false), at(149, true), at(150, true)], [false, true, false]);
});
