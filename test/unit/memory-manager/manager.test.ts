import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createMemoryManager } from "../../../src/memory-manager/manager.ts";
import { parseMemoryState } from "../../../src/memory-manager/state-file.ts";
import type { Container, Pod } from "../../../src/objects.ts";
import { allocatedPod } from "../../../src/roles.ts";
import type { FileChange } from "../../../src/seams/host.ts";
import { unaligned } from "../../../src/topology-hints.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { filesOf } from "../../fakes/files.ts";
import { never } from "../../fakes/signals.ts";
import { unalignedTopology } from "../../fakes/topology.ts";
import { asking, gib, idle, machine, podOf } from "./machines.ts";
import { restoredState } from "../../../src/memory-manager/open.ts";

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A node with two NUMA nodes of 4 GiB. */
function rig(t: TestContext, { state = idle(4, 4), podLevel = true } = {}) {
  const clock = fakeClock();
  const files: Record<string, string> = {};
  const measured: string[] = [];
  const world = { writeError: undefined as Error | undefined };
  const known = new Set<string>(state.assigned.keys());
  const manager = createMemoryManager({
    state,
    fs: {
      async apply(changes: readonly FileChange[]) {
        if (world.writeError) throw world.writeError;
        await filesOf(files).apply(changes);
      },
    },
    rootDir: "/root",
    podLevel,
    measures: {
      requested: () => void measured.push("requested"),
      failed: (source) => void measured.push(`failed ${source}`),
      assigned: (kind, types) => void measured.push(`${kind} ${types}`),
    },
    allSourcesReady: () => true,
    isKnown: (uid) => known.has(uid),
    clock,
    log: silentLog(),
  });
  const stop = new AbortController();
  const running = Promise.all(manager.runnables.map((runnable) => runnable.run(stop.signal)));
  t.after(async () => {
    stop.abort();
    await running;
  });
  const admit = async (pod: Pod) => {
    known.add(pod.metadata.uid);
    return unalignedTopology(manager).allocate(allocatedPod(pod), [], never);
  };
  const mems = async (pod: Pod, container: Container | undefined) =>
    container && (await manager.prepareContainer(pod, container, never))?.mems;
  const saved = () => [...(parseMemoryState(files["/root/memory_manager_state"] ?? "")?.assigned.keys() ?? [])];
  return { manager, clock, admit, mems, saved, measured, world, known, files };
}

const single = (uid: string, memory: string) => podOf(uid, [asking("main", memory)]);

test("containers of Guaranteed pods use the NUMA nodes of their memory; other containers use all nodes", async (t) => {
  const { manager, admit, mems, saved } = rig(t);
  const [p, group] = [single("p", "3Gi"), single("group", "7Gi")];
  const shared = podOf("s", [{ name: "main", image: "i", resources: { requests: { memory: "1Gi" } } }]);
  assert.deepEqual([await admit(p), await admit(shared), saved()], [undefined, undefined, ["p"]]);
  assert.deepEqual(
    [await mems(p, p.spec.containers[0]), await mems(shared, shared.spec.containers[0])],
    ["0", undefined],
  );
  manager.release("p");
  await settled();
  assert.deepEqual(saved(), []);
  assert.equal(await admit(group), undefined);
  assert.equal(await mems(group, group.spec.containers[0]), "0,1");
});

test("rejects a pod that needs more memory than is left, with the kubelet's reason", async (t) => {
  const { admit, measured } = rig(t);
  assert.deepEqual(await admit(podOf("p", [asking("main", "1Gi"), asking("more", "9Gi")])), {
    reason: "UnexpectedAdmissionError",
    message:
      "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected",
  });
  assert.deepEqual(measured, ["requested", "node_exclusive 1", "requested", "failed node"]);
});

test("releasing a rejected pod leaves no memory allocated", async (t) => {
  const { manager, admit } = rig(t);
  assert.ok(await admit(podOf("p", [asking("main", "1Gi"), asking("more", "9Gi")])));
  manager.release("p");
  assert.deepEqual(manager.memoryOf("p", "main"), []);
  assert.equal(await admit(single("q", "7Gi")), undefined);
});

test("memory of init containers becomes available to other pods once the containers after them start", async (t) => {
  const { admit, mems } = rig(t);
  const [init, main] = [asking("init", "3Gi"), asking("main", "1Gi")];
  const pod = podOf("p", [main], [init]);
  assert.deepEqual([await admit(pod), await admit(single("full", "4Gi"))], [undefined, undefined]);
  assert.equal(await mems(pod, init), "0");
  assert.ok(await admit(single("early", "2Gi")));
  assert.equal(await mems(pod, main), "0");
  assert.equal(await admit(single("late", "2Gi")), undefined);
});

test("admits a pod whose memory cannot be saved, and saves it in the next period", async (t) => {
  const { admit, saved, clock, world } = rig(t);
  await settled();
  world.writeError = new CodedError("unavailable", "no target");
  assert.equal(await admit(single("p", "1Gi")), undefined);
  assert.deepEqual(saved(), []);
  world.writeError = undefined;
  await clock.advance(10_000);
  await settled();
  assert.deepEqual(saved(), ["p"]);
});

test("before admitting a pod, releases the memory of pods that no source knows any more", async (t) => {
  const { admit, known } = rig(t);
  await admit(single("gone", "7Gi"));
  known.delete("gone");
  assert.equal(await admit(single("p", "7Gi")), undefined);
});

test("offers hints, and allocates from the nodes that the topology manager has chosen", async (t) => {
  const { manager } = rig(t);
  const pod = single("p", "2Gi");
  const [main] = pod.spec.containers;
  assert.ok(main);
  const allocator = await manager.podAllocator?.(allocatedPod(pod), [], never);
  assert.deepEqual(
    allocator
      ?.hints(main)
      .get("memory")
      ?.map(({ nodes, preferred }) => [nodes, preferred]),
    [
      [1n, true],
      [2n, true],
      [3n, false],
    ],
  );
  assert.equal(await allocator?.allocate(main, { nodes: 2n, preferred: true }), undefined);
  await allocator?.commit?.();
  assert.deepEqual(manager.memoryOf("p", "main"), [{ nodes: 2n, type: "memory", bytes: 2 * gib }]);
  const odd = single("odd", "100m");
  const ofOdd = await manager.podAllocator?.(allocatedPod(odd), [], never);
  assert.deepEqual(ofOdd?.hints(odd.spec.containers[0]), new Map());
  assert.match((await ofOdd?.allocate(asking("main", "100m"), unaligned))?.message ?? "", /quantity as int64/);
});

test("lists the memory that can be allocated to containers", (t) => {
  assert.deepEqual(rig(t).manager.allocatableMemory(), [
    { nodes: 1n, type: "memory", bytes: 3 * gib },
    { nodes: 2n, type: "memory", bytes: 4 * gib },
  ]);
});

test("containers of a pod with pod-level resources share the pod's memory, which is released with the pod", async (t) => {
  const { manager, mems, measured, known, files } = rig(t);
  const shared: Container = { name: "shared", image: "i" };
  const plain = podOf("p", [asking("main", "1Gi"), shared]);
  const pod = { ...plain, spec: { ...plain.spec, resources: { limits: { cpu: "1", memory: "3500Mi" } } } };
  known.add("p");
  const allocator = await manager.podAllocator?.(allocatedPod(pod), [], never);
  assert.equal(await allocator?.allocatePod?.(unaligned), undefined);
  await allocator?.commit?.();
  const blocks = (name: string) => manager.memoryOf("p", name).map(({ bytes, nodes }) => `${bytes / gib} ${nodes}`);
  assert.deepEqual([blocks("main"), blocks("shared")], [["1 2"], ["2.41796875 2"]]);
  assert.equal(await mems(pod, shared), "1");
  assert.deepEqual(measured, ["requested", "requested", "pod_exclusive 1", "pod_shared 1"]);
  const read = parseMemoryState(files["/root/memory_manager_state"] ?? "");
  const saved = restoredState(machine(4, 4), {
    file: "f",
    policy: "Static",
    machine: new Map(),
    assigned: new Map(),
    ...read,
  });
  assert.equal(saved.machine.get(1)?.tables.get("memory")?.free, 4 * gib - 3500 * 2 ** 20);
  manager.release("p");
  await settled();
  assert.equal(parseMemoryState(files["/root/memory_manager_state"] ?? "")?.machine.get(1)?.assignments, 0);
});

test("without the feature gate PodLevelResourceManagers, a running pod keeps its pod-level memory until it ends, but new pods get none", async (t) => {
  const shared: Container = { name: "shared", image: "i" };
  const whole = (uid: string): Pod => {
    const plain = podOf(uid, [shared]);
    return { ...plain, spec: { ...plain.spec, resources: { limits: { cpu: "1", memory: "3Gi" } } } };
  };
  const before = rig(t);
  before.known.add("old");
  const allocator = await before.manager.podAllocator?.(allocatedPod(whole("old")), [], never);
  assert.equal(await allocator?.allocatePod?.(unaligned), undefined);
  await allocator?.commit?.();
  const state = parseMemoryState(before.files["/root/memory_manager_state"] ?? "") ?? assert.fail("no state");

  const { manager, mems, known, files } = rig(t, { state, podLevel: false });
  known.add("new");
  assert.equal(await manager.podAllocator?.(allocatedPod(whole("new")), [], never), undefined);
  assert.equal(await mems(whole("old"), shared), "0");
  assert.equal(await mems(whole("new"), shared), undefined);
  manager.release("old");
  await settled();
  assert.deepEqual(parseMemoryState(files["/root/memory_manager_state"] ?? "")?.machine, idle(4, 4).machine);
});
