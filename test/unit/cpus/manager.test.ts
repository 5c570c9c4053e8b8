import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createCpuManager } from "../../../src/cpus/manager.ts";
import { type Assignments, type StaticPolicyOptions, createStaticPolicy } from "../../../src/cpus/static-policy.ts";
import { parseCpuState } from "../../../src/cpus/state-file.ts";
import { ContainerState } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { formatCpus } from "../../../src/lib/cpu-set.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Container } from "../../../src/objects.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { allocatedPod } from "../../../src/roles.ts";
import type { FileChange } from "../../../src/seams/host.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { unalignedTopology } from "../../fakes/topology.ts";
import { asking, cpus, machine, noOptions, podOf } from "./machines.ts";

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A node with four CPUs, of which the first is reserved. */
function rig(
  t: TestContext,
  options: Partial<StaticPolicyOptions> = {},
  { assigned = new Map(), podLevel = true }: { readonly assigned?: Assignments; readonly podLevel?: boolean } = {},
) {
  const clock = fakeClock();
  const containers = new Map<string, RuntimePod>();
  const updates: string[] = [];
  const measured: string[] = [];
  const world = { text: "", writeError: undefined as Error | undefined, updateError: undefined as Error | undefined };
  const known = new Set<string>(assigned.keys());
  const policy = createStaticPolicy({
    topology: machine({ cores: 4 }),
    options: { ...noOptions, ...options },
    reserved: cpus(0),
    reservedMilli: 1000,
  });
  const manager = createCpuManager({
    policy,
    assigned,
    fs: {
      async apply(changes: readonly FileChange[]) {
        if (world.writeError) throw world.writeError;
        for (const change of changes) if (change.kind === "write") world.text = String(change.data);
      },
    },
    rootDir: "/root",
    podLevel,
    runtime: {
      async updateContainerResources({ containerId, linux }) {
        if (world.updateError) throw world.updateError;
        updates.push(`${containerId} ${linux?.cpusetCpus}`);
      },
    },
    podCache: { list: () => [...containers.values()] },
    reconcileMs: 10_000,
    measures: {
      enabled() {},
      requested: () => void measured.push("requested"),
      failed: (_source, wholeCores) => void measured.push(`failed ${wholeCores}`),
      assigned() {},
      wholeCores: () => void measured.push("whole cores"),
      sharedCache: () => void measured.push("shared cache"),
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
  const admit = async (uid: string, ...wanted: readonly Container[]) => {
    known.add(uid);
    return unalignedTopology(manager).allocate(allocatedPod(podOf(uid, wanted)), [], never);
  };
  /** Creates a container, which then runs. */
  const start = async (uid: string, container: Container, id: string) => {
    const additions = await manager.prepareContainer(podOf(uid, [container]), container, never);
    const run = aStatus(container, ContainerState.CONTAINER_RUNNING, { id });
    containers.set(uid, { ...observe([], [run]), uid });
    return additions?.cpus;
  };
  const saved = () =>
    [...(parseCpuState(world.text)?.assigned ?? [])].flatMap(([uid, own]) =>
      [...own].map(([name, set]) => `${uid} ${name} ${formatCpus(set)}`),
    );
  return { manager, clock, admit, start, saved, updates, measured, world, known, containers };
}

const shared = asking("main", "100m");

test("moves running containers off CPUs that become exclusive, and back once they are released", async (t) => {
  const { manager, admit, start, saved, updates, containers } = rig(t);
  await admit("s", shared);
  assert.equal(await start("s", shared, "id-s"), "0-3");
  assert.equal(await admit("p", asking("main", "2")), undefined);
  await settled();
  assert.deepEqual([updates, saved()], [["id-s 0,3"], ["p main 1-2"]]);
  assert.equal(await start("p", asking("main", "2"), "id-p"), "1-2");
  containers.delete("p");
  manager.release("p");
  await settled();
  assert.deepEqual([updates.at(-1), saved()], ["id-s 0-3", []]);
});

test("updates a container only when its CPUs change, and once after a restart", async (t) => {
  const { admit, start, updates, clock, containers } = rig(t);
  await admit("s", shared);
  await start("s", shared, "id-s");
  const run = aStatus(shared, ContainerState.CONTAINER_RUNNING, { id: "id-old" });
  containers.set("old", { ...observe([], [run]), uid: "old" });
  for (const _ of [1, 2, 3]) {
    await clock.advance(10_000);
    await settled();
  }
  assert.deepEqual(updates, ["id-old 0-3"]);
});

test("retries in the next period to update containers that could not be updated", async (t) => {
  const { admit, start, updates, clock, world } = rig(t);
  await admit("s", shared);
  await start("s", shared, "id-s");
  world.updateError = new CodedError("unavailable", "no runtime");
  await admit("p", asking("main", "1"));
  await settled();
  world.updateError = undefined;
  assert.deepEqual(updates, []);
  await clock.advance(10_000);
  await settled();
  assert.deepEqual(updates, ["id-s 0,2-3"]);
});

test("admits a pod even if its CPUs cannot be saved, and saves them in the next period", async (t) => {
  const { admit, saved, clock, world } = rig(t);
  await settled();
  world.writeError = new CodedError("unavailable", "no target");
  assert.equal(await admit("p", asking("main", "1")), undefined);
  assert.deepEqual(saved(), []);
  world.writeError = undefined;
  await clock.advance(10_000);
  await settled();
  assert.deepEqual(saved(), ["p main 1"]);
});

test("rejects pods with the kubelet's reasons", async (t) => {
  const { admit, measured } = rig(t);
  assert.deepEqual(await admit("p", asking("main", "4")), {
    reason: "UnexpectedAdmissionError",
    message:
      "Allocate failed due to not enough cpus available to satisfy request: requested=4, available=3, which is unexpected",
  });
  const whole = rig(t, { fullCores: true });
  assert.deepEqual((await whole.admit("p", asking("main", "4")))?.reason, "SMTAlignmentError");
  assert.deepEqual(
    [measured, whole.measured],
    [
      ["requested", "failed false"],
      ["requested", "failed true"],
    ],
  );
  await whole.admit("q", asking("main", "2"));
  assert.deepEqual(whole.measured.slice(2), ["requested", "whole cores", "shared cache"]);
});

test("releases the CPUs of pods that no source reports any more before it admits the next pod", async (t) => {
  const { admit, known } = rig(t);
  await admit("gone", asking("main", "3"));
  known.delete("gone");
  assert.equal(await admit("p", asking("main", "3")), undefined);
});

test("counts exclusive and free CPUs; gives containers without exclusive CPUs the reserved ones if no others are left", async (t) => {
  const { manager, admit, start } = rig(t, { strictReservation: true });
  await admit("p", asking("main", "3"));
  assert.deepEqual(manager.counts(), { shared: 0, exclusiveByNumaNode: new Map([[0, 3]]) });
  assert.equal(await start("s", shared, "id-s"), "0");
  assert.deepEqual(
    [podOf("p", [asking("main", "3"), shared]), podOf("p", [shared]), podOf("s", [shared])].map((pod) =>
      manager.hasExclusiveCpus(pod),
    ),
    [true, false, false],
  );
  assert.equal(formatCpus(manager.allocatableCpus()), "1-3");
});

test("without the feature gate PodLevelResourceManagers, a pod keeps its pod-level CPUs until it ends, but a new pod gets none", async (t) => {
  const whole = (uid: string) => {
    const pod = podOf(uid, [{ name: "shared", image: "i" }]);
    return allocatedPod({ ...pod, spec: { ...pod.spec, resources: { limits: { cpu: "2", memory: "1Gi" } } } });
  };
  const { manager, known, world } = rig(
    t,
    {},
    { assigned: new Map([["old", new Map([["", cpus(1, 2)]])]]), podLevel: false },
  );
  known.add("new");
  assert.equal(await manager.podAllocator?.(whole("new"), [], never), undefined);
  const shared: Container = { name: "shared", image: "i" };
  assert.equal((await manager.prepareContainer(whole("new"), shared, never))?.cpus, "0,3");
  await settled();
  assert.deepEqual([...(parseCpuState(world.text)?.assigned.keys() ?? [])], ["old"]);
  manager.release("old");
  await settled();
  assert.equal((await manager.prepareContainer(whole("new"), shared, never))?.cpus, "0-3");
  assert.deepEqual(parseCpuState(world.text)?.assigned, new Map());
});
