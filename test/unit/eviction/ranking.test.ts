import assert from "node:assert/strict";
import { test } from "node:test";
import type { PodUsage } from "../../../src/eviction/ports.ts";
import { type EvictionCandidate, rankPods } from "../../../src/eviction/ranking.ts";
import type { NodeSignal } from "../../../src/eviction/signals.ts";
import type { PodSpec } from "../../../src/objects.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const oneDisk = { dedicatedImageFs: false, splitContainerFs: false };
const requesting = (requests: Readonly<Record<string, string>>): Partial<PodSpec> => ({
  containers: [aContainer("main", { resources: { requests } })],
});

function candidate(name: string, usage: Partial<PodUsage> | undefined, spec: Partial<PodSpec> = {}): EvictionCandidate {
  const pod = aPod(spec, { name, uid: name });
  return { pod, usage: usage && { containers: new Map(), volumes: new Map(), ...usage } };
}

const order = (signal: NodeSignal, candidates: readonly EvictionCandidate[], disks = oneDisk) =>
  rankPods(candidates, signal, disks).map(({ pod }) => pod.metadata.name);

test("memory: ranks by unknown usage, then usage over request, then low priority, then the amount over request", () => {
  const candidates = [
    candidate("within", { memoryBytes: 900 }, requesting({ memory: "1000" })),
    candidate("important", { memoryBytes: 900 }, { priority: 10 }),
    candidate("little", { memoryBytes: 150 }, requesting({ memory: "100" })),
    candidate("much", { memoryBytes: 300 }, requesting({ memory: "200" })),
    candidate("unknown", undefined, { priority: 99 }),
  ];
  assert.deepEqual(order("memory.available", candidates), ["unknown", "much", "little", "important", "within"]);
});

test("adds the overhead to a pod's request only if the pod has a request", () => {
  const overhead = { memory: "100" };
  const candidates = [
    candidate("within", { memoryBytes: 190 }, { ...requesting({ memory: "100" }), overhead }),
    candidate("beyond", { memoryBytes: 50 }, { overhead }),
  ];
  assert.deepEqual(order("memory.available", candidates), ["beyond", "within"]);
});

test("PIDs: ranks by lowest priority first, then by most processes", () => {
  const candidates = [
    candidate("a", { processes: 9 }, { priority: 1 }),
    candidate("b", { processes: 2 }),
    candidate("c", { processes: 5 }),
  ];
  assert.deepEqual(order("pid.available", candidates), ["c", "b", "a"]);
});

const files = (layer: number, logs: number, volume: number): Partial<PodUsage> => ({
  containers: new Map([["main", { layer: { bytes: layer, inodes: 1 }, logs: { bytes: logs, inodes: 1 } }]]),
  volumes: new Map([["v", { bytes: volume, inodes: 50 }]]),
});

test("disk: counts only usage on the file system under pressure", () => {
  const candidates = [candidate("layers", files(90, 5, 0)), candidate("files", files(0, 10, 70))];
  assert.deepEqual(order("nodefs.available", candidates), ["layers", "files"]);
  const apart = { dedicatedImageFs: true, splitContainerFs: false };
  assert.deepEqual(order("nodefs.available", candidates, apart), ["files", "layers"]);
  assert.deepEqual(order("imagefs.available", candidates, apart), ["layers", "files"]);
  assert.deepEqual(order("containerfs.available", candidates, apart), ["layers", "files"]);
  const split = { dedicatedImageFs: true, splitContainerFs: true };
  assert.deepEqual(order("nodefs.available", candidates, split), ["layers", "files"]);
});

test("inodes: ranks by inodes used minus requests in bytes, like the kubelet", () => {
  const candidates = [
    candidate("few", files(0, 0, 0), {}),
    candidate("requesting", { ...files(0, 0, 9), containers: new Map() }, requesting({ "ephemeral-storage": "51" })),
  ];
  assert.deepEqual(order("nodefs.inodesFree", candidates), ["few", "requesting"]);
});

test("disk: ranks pods whose usage is within their request last", () => {
  const candidates = [
    candidate("within", files(500, 0, 0), requesting({ "ephemeral-storage": "1000" })),
    candidate("beyond", files(1, 0, 0)),
  ];
  assert.deepEqual(order("nodefs.available", candidates), ["beyond", "within"]);
});

test("disk: ignores container requests of a pod with pod-level resources", () => {
  const own = { ...requesting({ "ephemeral-storage": "1000" }), resources: { requests: { cpu: "1" } } };
  const candidates = [
    candidate("small", files(100, 0, 0), requesting({ "ephemeral-storage": "1000" })),
    candidate("whole", files(100, 0, 0), own),
    candidate("beyond", files(500, 0, 0)),
  ];
  assert.deepEqual(order("nodefs.available", candidates), ["beyond", "whole", "small"]);
});
