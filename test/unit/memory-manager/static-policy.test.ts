import assert from "node:assert/strict";
import { test } from "node:test";
import { idsOfNodes, numaNodes } from "../../../src/lib/numa-nodes.ts";
import { idleMachine } from "../../../src/memory-manager/machine-state.ts";
import {
  type MemoryState,
  allocateMemory,
  releaseEndedInit,
  releasePod,
  topologyHints,
} from "../../../src/memory-manager/static-policy.ts";
import type { Container, Pod } from "../../../src/objects.ts";
import { asking, gib, idle, node, podOf } from "./machines.ts";

/** Allocates all containers of a pod. */
function admit(state: MemoryState, pod: Pod): MemoryState {
  const { initContainers = [], containers } = pod.spec;
  return [...initContainers, ...containers].reduce((now, container) => allocateMemory(now, pod, container), state);
}

const single = (uid: string, memory: string) => podOf(uid, [asking("main", memory)]);
/** A container's memory: GiB by its nodes. */
const has = (state: MemoryState, uid: string, name = "main") =>
  state.assigned
    .get(uid)
    ?.get(name)
    ?.map(({ nodes, bytes }) => `${bytes / gib} on ${idsOfNodes(nodes).join("+")}`)
    .join(", ");
/** Free GiB of memory by node. */
const free = ({ machine }: MemoryState) =>
  [...machine.values()].map(({ tables }) => (tables.get("memory")?.free ?? 0) / gib);

test("allocates a container's memory from one NUMA node, the lowest-numbered with enough", () => {
  const first = admit(idle(4, 4), single("p", "3Gi"));
  assert.deepEqual([has(first, "p"), free(first)], ["3 on 0", [0, 4]]);
  const second = admit(first, single("q", "1Gi"));
  assert.deepEqual([has(second, "q"), free(second)], ["1 on 1", [0, 3]]);
  assert.equal(admit(second, single("q", "1Gi")), second, "a container keeps what it has");
});

test("a request that exceeds one node gets a group of nodes, which then serve only requests for the same group", () => {
  const group = admit(idle(4, 4, 4), single("p", "5Gi"));
  assert.deepEqual([has(group, "p"), free(group)], ["5 on 0+1", [0, 2, 4]]);
  const beside = admit(group, single("q", "2Gi"));
  assert.deepEqual([has(beside, "q"), free(beside)], ["2 on 2", [0, 2, 2]]);
  assert.throws(() => admit(beside, single("r", "3Gi")), {
    message: "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
  });
  const [p, q] = [releasePod(beside, "p"), releasePod(beside, "q")];
  assert.deepEqual(
    [free(p), free(q)],
    [
      [3, 4, 2],
      [0, 2, 4],
    ],
  );
  assert.equal(has(admit(p, single("r", "3Gi")), "r"), "3 on 0", "the group ends with its last block");
});

test("a node with an allocation from that node alone does not become part of a group", () => {
  const state = admit(idle(4, 4), single("p", "1Gi"));
  assert.throws(() => admit(state, single("q", "5Gi")), /no NUMA nodes with enough memory is available/);
  const hint = { nodes: numaNodes([0, 1]), preferred: true };
  assert.throws(() => allocateMemory(state, single("q", "1Gi"), asking("main", "1Gi"), hint), {
    message: "[memorymanager] preferred hint violates NUMA node allocation",
  });
});

test("allocates from the nodes of a hint, and extends a hint that is too small", () => {
  const hinted = (ids: readonly number[], memory: string, preferred = true) =>
    has(
      allocateMemory(idle(4, 4), single("p", memory), asking("main", memory), { nodes: numaNodes(ids), preferred }),
      "p",
    );
  assert.equal(hinted([1], "2Gi"), "2 on 1");
  assert.equal(hinted([1], "5Gi"), "5 on 0+1");
  assert.throws(() => hinted([1], "9Gi"), {
    message: "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
  });
  const busy = admit(idle(4, 4, 4), single("x", "2Gi"));
  assert.throws(
    () => allocateMemory(busy, single("p", "2Gi"), asking("main", "2Gi"), { nodes: numaNodes([0]), preferred: true }),
    { message: "[memorymanager] failed to find NUMA nodes to extend the current topology hint" },
  );
});

test("containers reuse the memory of earlier init containers, and a restart changes nothing", () => {
  const init = [asking("first", "2Gi"), asking("second", "3Gi")];
  const pod = podOf("p", [asking("main", "1Gi")], init);
  const state = admit(idle(8), pod);
  assert.deepEqual(
    [has(state, "p", "first"), has(state, "p", "second"), has(state, "p"), free(state)],
    ["0 on 0", "2 on 0", "1 on 0", [4]],
  );
  const second = releaseEndedInit(state, pod, "second");
  assert.deepEqual([has(second, "p", "first"), free(second)], ["", [4]]);
  const main = releaseEndedInit(second, pod, "main");
  assert.deepEqual([has(main, "p", "second"), free(main)], ["", [6]]);
  assert.equal(releaseEndedInit(main, pod, "main"), main);
  assert.equal(admit(main, pod), main, "admitted again after a restart");
  assert.deepEqual(releasePod(main, "p"), idle(8));
});

test("sidecars keep their memory", () => {
  const sidecar = asking("proxy", "2Gi", { restartPolicy: "Always" });
  const pod = podOf("p", [asking("main", "1Gi")], [asking("first", "1Gi"), sidecar]);
  const state = admit(idle(8), pod);
  assert.deepEqual(
    [has(state, "p", "first"), has(state, "p", "proxy"), has(state, "p"), free(state)],
    ["0 on 0", "2 on 0", "1 on 0", [4]],
  );
  assert.equal(has(releaseEndedInit(state, pod, "main"), "p", "proxy"), "2 on 0");
});

test("huge pages come from the nodes of the container's memory", () => {
  const machine = idleMachine([node(0, 4), node(1, 4, 1)], new Map());
  const amounts = { cpu: "1", memory: "1Gi", "hugepages-2Mi": "512Mi" };
  const container: Container = { name: "main", image: "i", resources: { requests: amounts, limits: amounts } };
  const state = admit({ machine, assigned: new Map() }, podOf("p", [container]));
  assert.equal(has(state, "p"), "1 on 1, 0.5 on 1");
  assert.equal(state.machine.get(1)?.assignments, 2);
  assert.throws(() => admit(state, podOf("q", [container, { ...container, name: "more" }])), /no NUMA nodes/);
});

test("offers every set of nodes with enough memory, and prefers sets no larger than an idle machine would need", () => {
  const hintsOf = (state: MemoryState, pod: Pod, container: Container | undefined) =>
    [...topologyHints(state, pod, container)].map(([type, hints]) => [
      type,
      (hints ?? []).map(({ nodes, preferred }) => `${idsOfNodes(nodes ?? 0n).join("+")}${preferred ? "!" : ""}`),
    ]);
  const pod = single("p", "3Gi");
  const [main] = pod.spec.containers;
  assert.deepEqual(hintsOf(idle(4, 4), pod, main), [["memory", ["0!", "1!", "0+1"]]]);
  const busy = admit(idle(4, 4), single("q", "2Gi"));
  assert.deepEqual(hintsOf(busy, pod, main), [["memory", ["1!"]]]);
  assert.deepEqual(hintsOf(busy, single("p", "5Gi"), asking("main", "5Gi")), []);
  const two = podOf("p", [asking("a", "3Gi"), asking("b", "3Gi")]);
  assert.deepEqual(hintsOf(idle(4, 4), two, undefined), [["memory", ["0+1!"]]]);
  const has = admit(idle(4, 4), pod);
  assert.deepEqual(hintsOf(has, pod, main), [["memory", ["0!"]]]);
  assert.deepEqual(hintsOf(has, pod, undefined), [["memory", ["0!"]]]);
  assert.deepEqual(hintsOf(has, single("p", "2Gi"), asking("main", "2Gi")), [], "the request has changed");
});

test("rejects an amount that is not a whole number of bytes, in the kubelet's words", () => {
  assert.throws(() => admit(idle(4), single("p", "100m")), {
    message: "[memorymanager] failed to represent quantity as int64",
  });
});
