import assert from "node:assert/strict";
import { test } from "node:test";
import type { Resources } from "../../../src/objects.ts";
import { swapLimit, podSwap } from "../../../src/pod/swap.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const Gi = 2 ** 30;
const target = { memoryBytes: 4 * Gi, swapBytes: 2 * Gi, cgroupV2: true, swapController: true };

function swapOf(resources: Resources, spec: object = {}, on: Partial<typeof target> = {}): number {
  const container = aContainer("c", { resources });
  return swapLimit(aPod({ containers: [container], ...spec }), container, { ...target, ...on });
}

test("a Burstable container gets swap in proportion to its memory request", () => {
  assert.equal(swapOf({ requests: { memory: "1Gi" } }), Gi / 2);
  assert.equal(swapOf({ requests: { memory: "1Gi" }, limits: { memory: "2Gi" } }), Gi / 2);
  assert.equal(swapOf({ requests: { memory: "1" } }), 0, "whole bytes");
});

test("containers without a memory request, or whose request equals the limit or exceeds the machine's memory, get no swap", () => {
  const some = { requests: { memory: "1Gi" } };
  assert.equal(swapOf({}), 0, "BestEffort");
  assert.equal(swapOf({ requests: { cpu: "1" } }), 0, "no memory requested");
  assert.equal(swapOf({ requests: { memory: "1Gi" }, limits: { memory: "1Gi" } }), 0, "as much as the limit");
  assert.equal(swapOf({ limits: { memory: "1Gi", cpu: "1" }, requests: { memory: "1Gi", cpu: "1" } }), 0, "Guaranteed");
  assert.equal(swapOf({ requests: { memory: "8Gi" } }), 0, "more than there is");
  assert.equal(swapOf(some, { priority: 2_000_000_000 }), 0, "critical");
  assert.equal(swapOf(some, {}, { cgroupV2: false }), 0, "cgroup v1");
  assert.equal(swapOf(some, {}, { swapController: false }), 0, "swap cannot be limited");
});

test("a pod's swap limit is the sum of its containers'", () => {
  const some = (memory: string) => aContainer("c", { resources: { requests: { memory } } });
  const pod = aPod({ containers: [some("1Gi"), aContainer("none")], initContainers: [some("512Mi")] });
  assert.equal(podSwap(pod, { ...target, limitedSwap: true }), Gi / 2 + Gi / 4);
  assert.equal(podSwap(pod, { ...target, limitedSwap: false }), 0);
});
