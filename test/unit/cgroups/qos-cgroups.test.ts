import assert from "node:assert/strict";
import { test } from "node:test";
import type { CgroupLimits } from "../../../src/host/cgroups.ts";
import { createQosCgroups } from "../../../src/cgroups/qos-cgroups.ts";
import { ContainerState } from "../../../src/gen/cri.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import type { ResourceList } from "../../../src/pod/resources.ts";
import { allocatedPod } from "../../../src/roles.ts";
import type { WorkerPhase } from "../../../src/state/pod-table.ts";
import { type TestPod, aContainer, aPod, aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const burstable = "/kubepods/burstable";
const bestEffort = "/kubepods/besteffort";

function rig(pageSizes: readonly string[] = [], memoryQos?: { readonly reserves: boolean }) {
  const kept: (readonly [guaranteed: number, burstable: number])[] = [];
  const pods: TestPod[] = [];
  const phases = new Map<string, WorkerPhase>();
  const seen = new Map<string, RuntimePod>();
  const set: (readonly [path: string, limits: CgroupLimits])[] = [];
  const failing: { with?: Error | undefined } = {};
  let held: PromiseWithResolvers<void> | undefined;
  const cgroups = {
    async ensure(path: string, limits: CgroupLimits) {
      if (failing.with) throw failing.with;
      const turn = held;
      held = undefined;
      await turn?.promise;
      set.push([path, limits]);
    },
  };
  const tiers = createQosCgroups({
    cgroups: async () => ({ cgroups, layout: { driver: "cgroupfs", root: "/", perQos: true } }),
    pods: { list: () => pods },
    worker: {
      get(uid) {
        const phase = phases.get(uid);
        return phase && { phase, pod: undefined };
      },
    },
    podCache: { get: (uid) => seen.get(uid) },
    allocatedPod: allocatedPod,
    pageSizes,
    ...(memoryQos && { memoryQos }),
    measures: { memoryReserved: (...bytes) => void kept.push(bytes) },
  });
  const shares = () => set.splice(0).map(([path, { cpuShares }]) => [path, cpuShares]);
  /** Has the next change wait. */
  const holdUp = () => (held = Promise.withResolvers<void>());
  return { pods, phases, seen, set, shares, kept, tiers, failing, holdUp };
}

const asking = (uid: string, cpu: string, status: object = {}): TestPod => ({
  ...aPod({ containers: [aContainer("c", { resources: { requests: { cpu } } })] }, { uid }),
  status,
});

test("sets CPU shares of Burstable to the sum of requests and of BestEffort to the minimum, and writes only changes", async () => {
  const { pods, shares, tiers } = rig();
  pods.push(asking("a", "250m"), asking("b", "750m"), aPod({}, { uid: "c" }));
  await tiers.ensure(never);
  assert.deepEqual(shares(), [
    [bestEffort, 2],
    [burstable, 1024],
  ]);
  await tiers.ensure(never);
  assert.deepEqual(shares(), []);
  pods.push(asking("d", "1"));
  await tiers.ensure(never);
  assert.deepEqual(shares(), [[burstable, 2048]]);
});

test("does not count pods whose containers are gone, or that ended before graftlet started", async () => {
  const { pods, phases, seen, shares, tiers } = rig();
  pods.push(asking("stopping", "1"), asking("stopped", "1"));
  pods.push(asking("ended", "1", { phase: "Succeeded" }), asking("refused", "1", { phase: "Failed" }));
  phases.set("stopping", "terminating").set("stopped", "terminated").set("ended", "terminating");
  const runIn = (state: ContainerState) => observe([], [aStatus(aContainer("c"), state)]);
  seen.set("ended", runIn(ContainerState.CONTAINER_EXITED)).set("refused", runIn(ContainerState.CONTAINER_RUNNING));
  await tiers.ensure(never);
  assert.deepEqual(shares()[1], [burstable, 2048], "what is being stopped, and what runs though it was refused");
  phases.set("stopping", "finished").set("refused", "terminated");
  await tiers.ensure(never);
  assert.deepEqual(shares(), [[burstable, 2]]);
});

test("a repair sets all limits again; a failed limit is retried at the next change", async () => {
  const { pods, shares, tiers, failing } = rig();
  pods.push(asking("a", "1"));
  await tiers.ensure(never);
  shares();
  await tiers.reapplyLimits(never);
  assert.equal(shares().length, 2);
  pods.push(asking("b", "1"));
  failing.with = new Error("read-only");
  await assert.rejects(tiers.ensure(never), /read-only/);
  failing.with = undefined;
  await tiers.ensure(never);
  assert.deepEqual(shares(), [[burstable, 2048]]);
});

test("after concurrent updates, the latest sum is in effect", async () => {
  const { pods, set, shares, tiers, holdUp } = rig();
  await tiers.ensure(never);
  shares();
  pods.push(asking("a", "1"));
  const held = holdUp();
  const first = tiers.ensure(never);
  await new Promise(setImmediate);
  pods.push(asking("b", "1"));
  const second = tiers.ensure(never);
  await new Promise(setImmediate);
  held.resolve();
  await Promise.all([first, second]);
  assert.equal(set.length, 2);
  assert.deepEqual(shares().at(-1), [burstable, 2048]);
});

test("sets no limit on huge pages for QoS cgroups", async () => {
  const { set, tiers } = rig(["2MB", "1GB"]);
  await tiers.ensure(never);
  for (const [, { hugepages }] of set) assert.deepEqual(hugepages, { "2MB": 2 ** 62, "1GB": 2 ** 62 });
});

test("with the feature gate MemoryQoS, protects requested memory if the policy says so", async () => {
  const sized = (uid: string, memory: string, limits: ResourceList) =>
    aPod({ containers: [aContainer("c", { resources: { requests: { memory, cpu: "1" }, limits } })] }, { uid });
  const tiered = rig([], { reserves: true });
  tiered.pods.push(sized("b", "64Mi", {}), sized("g", "32Mi", { memory: "32Mi", cpu: "1" }), aPod({}, { uid: "n" }));
  await tiered.tiers.ensure(never);
  const [all, low] = [96 * 2 ** 20, 64 * 2 ** 20];
  assert.deepEqual(tiered.set, [
    ["/kubepods", { memoryMinBytes: all }],
    [bestEffort, { cpuShares: 2, hugepages: {} }],
    [burstable, { cpuShares: 1024, hugepages: {}, memoryLowBytes: low }],
  ]);
  assert.deepEqual(tiered.kept, [[32 * 2 ** 20, low]]);
  tiered.set.length = 0;
  tiered.pods.splice(0, 1);
  await tiered.tiers.ensure(never);
  assert.deepEqual(tiered.set, [
    ["/kubepods", { memoryMinBytes: 32 * 2 ** 20 }],
    [burstable, { cpuShares: 2, hugepages: {}, memoryLowBytes: 0 }],
  ]);
  const none = rig([], { reserves: false });
  none.pods.push(sized("b", "64Mi", {}));
  await none.tiers.ensure(never);
  assert.deepEqual(
    none.set.map(([, { memoryMinBytes, memoryLowBytes }]) => [memoryMinBytes, memoryLowBytes]),
    [
      [0, undefined],
      [undefined, undefined],
      [undefined, 0],
    ],
  );
});
