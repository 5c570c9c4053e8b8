import assert from "node:assert/strict";
import { test } from "node:test";
import { evictionNotice } from "../../../src/eviction/message.ts";
import type { Threshold } from "../../../src/eviction/thresholds.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const mebibyte = 2 ** 20;
const memory: Threshold = { signal: "memory.available", value: "100Mi", graceMs: 0 };
const lowMemory = new Map([["memory.available", { available: 90 * mebibyte, capacity: 2 ** 30 }]] as const);

test("names the resource, the threshold and each container over its request", () => {
  const pod = aPod({
    containers: [
      aContainer("hog", { resources: { requests: { memory: "100Mi" } } }),
      aContainer("modest", { resources: { requests: { memory: "100Mi" } } }),
      aContainer("careless"),
    ],
  });
  const containers = new Map([
    ["hog", { memoryBytes: 500 * mebibyte }],
    ["modest", { memoryBytes: 100 * mebibyte }],
    ["careless", { memoryBytes: 3 }],
    ["of another spec", { memoryBytes: 1 }],
  ]);
  const usage = { memoryBytes: 600 * mebibyte, containers, volumes: new Map() };
  const thresholds = [memory];
  assert.deepEqual(evictionNotice({ resource: "memory", pod, usage, thresholds, observations: lowMemory }), {
    message:
      "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. " +
      "Container hog was using 500Mi, request is 100Mi, has larger consumption of memory. " +
      "Container careless was using 3, request is 0, has larger consumption of memory. ",
    annotations: {
      offending_containers: "hog,careless",
      offending_containers_usage: "500Mi,3",
      starved_resource: "memory",
    },
  });
});

test("names the pod and its memory request if the request is at pod level", () => {
  const pod = aPod({ resources: { requests: { memory: "1Gi" } } }, { name: "whole" });
  const usage = { memoryBytes: 2 ** 31, containers: new Map(), volumes: new Map() };
  const { message, annotations } = evictionNotice({
    resource: "memory",
    pod,
    usage,
    thresholds: [memory],
    observations: lowMemory,
  });
  assert.match(message, /Pod whole was using 2Gi, request is 1Gi, has larger consumption of memory\. $/);
  assert.equal(annotations["offending_pod"], "whole");
  assert.equal(annotations["offending_pod_usage"], "2Gi");
});

test("formats inodes and processes with decimal suffixes, and percentages of them with binary ones, like the kubelet", () => {
  const thresholds: Threshold[] = [{ signal: "nodefs.inodesFree", value: "50%", graceMs: 0 }];
  const observations = new Map([["nodefs.inodesFree", { available: 3000, capacity: 131_072 }]] as const);
  const pod = aPod();
  const { message } = evictionNotice({ resource: "inodes", pod, usage: undefined, thresholds, observations });
  assert.equal(message, "The node was low on resource: inodes. Threshold quantity: 64Ki, available: 3k. ");
});

test("a container's disk usage is the sum of its writable layer and logs if both are known", () => {
  const pod = aPod({ containers: [aContainer("a"), aContainer("b")] });
  const use = (bytes: number) => ({ bytes, inodes: 1 });
  const containers = new Map([
    ["a", { layer: use(1024), logs: use(1024) }],
    ["b", { layer: use(5) }],
  ]);
  const usage = { containers, volumes: new Map() };
  const { annotations } = evictionNotice({
    resource: "ephemeral-storage",
    pod,
    usage,
    thresholds: [],
    observations: new Map(),
  });
  assert.deepEqual(annotations, {
    offending_containers: "a",
    offending_containers_usage: "2Ki",
    starved_resource: "ephemeral-storage",
  });
});
