import assert from "node:assert/strict";
import { test } from "node:test";
import { LinuxContainerResources } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Container, Resources } from "../../../src/objects.ts";
import { cpuAndMemory } from "../../../src/pod/resources.ts";
import type { ContainerResize } from "../../../src/runtime/plan-resize.ts";
import { type CgroupReading, type ResizeDeps, resizePod } from "../../../src/runtime/actuate-resources.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const Mi = 2 ** 20;
const has = (cpu: string, memory: string): Resources => ({ requests: { cpu, memory }, limits: { cpu, memory } });
const change = (name: string, from: Resources, to: Resources): ContainerResize => ({
  container: aContainer(name, { resources: to }),
  containerId: `id-${name}`,
  from,
  to,
});

/** Fake ports that record calls in order. */
function rig(
  wanted: ReturnType<ResizeDeps["groups"]["wanted"]>,
  reading: Partial<CgroupReading> = {},
  refuses?: string,
) {
  const calls: string[] = [];
  const asked: string[] = [];
  const outcomes: boolean[] = [];
  const whole: { inForce: Resources | undefined } = { inForce: undefined };
  const text = ({ requests, limits }: Resources) =>
    `${requests?.["cpu"]}/${limits?.["cpu"]} ${requests?.["memory"]}/${limits?.["memory"]}`;
  const deps: ResizeDeps = {
    groups: {
      wanted: () => wanted,
      isStale: () => true,
      async read(_pod, ids) {
        asked.push(...ids);
        return { containers: new Map(), ...reading };
      },
      set: async (_pod, limits) => void calls.push(`pod ${JSON.stringify(limits)}`),
    },
    runtime: {
      async updateContainerResources({ containerId, linux }) {
        if (containerId === refuses) throw new CodedError("unknown", "the runtime will not");
        calls.push(`${containerId} ${linux?.cpuQuota} ${linux?.memoryLimitInBytes}`);
      },
    },
    actuatedResources: {
      podResources: () => whole.inForce,
      setContainerResources: async (_uid, id, resources) => void calls.push(`${id} has ${text(resources)}`),
      setPodResources: async (_uid, resources) => {
        whole.inForce = resources;
        calls.push(`pod has ${text(resources)}`);
      },
    },
    sandboxOverhead: () => ({}),
    configureResources: async (_pod, { resources }: Container) =>
      LinuxContainerResources.fromPartial(
        cpuAndMemory(
          {
            cpuRequest: resources?.requests?.["cpu"],
            cpuLimit: resources?.limits?.["cpu"],
            memoryLimit: resources?.limits?.["memory"],
          },
          { cpuCfsQuota: true, cpuCfsPeriodUs: 100_000 },
        ),
      ),
    uninterrupted: never,
    resizes: { actuated: (_ms, success) => void outcomes.push(success) },
    clock: fakeClock(),
    log: silentLog(),
  };
  const resize = (resizes: readonly ContainerResize[], more: { resizePod?: boolean; resources?: Resources } = {}) => {
    const { resources, resizePod: all = false } = more;
    const pod = aPod({ containers: resizes.map(({ container }) => container), ...(resources && { resources }) });
    return resizePod(deps, { pod, sandboxId: "box", containers: resizes, wholePod: all }, never);
  };
  return { calls, asked, outcomes, resize };
}

const limits = (cpuQuotaUs: number, memoryBytes: number, cpuShares: number) => ({
  cpuQuotaUs,
  cpuPeriodUs: 100_000,
  memoryBytes,
  cpuShares,
});

test("raises the pod limits before those of its containers: memory, CPU limits, then shares", async () => {
  const { calls, resize } = rig(limits(30_000, 96 * Mi, 307), { limits: limits(20_000, 64 * Mi, 204) });
  await resize([change("a", has("200m", "64Mi"), has("300m", "96Mi"))]);
  assert.deepEqual(calls, [
    `pod {"memoryBytes":${96 * Mi}}`,
    `id-a 20000 ${96 * Mi}`,
    "id-a has 200m/200m 96Mi/96Mi",
    'pod {"cpuQuotaUs":30000,"cpuPeriodUs":100000}',
    'pod {"cpuShares":307}',
    `id-a 30000 ${96 * Mi}`,
    "id-a has 300m/300m 96Mi/96Mi",
  ]);
});

test("lowers the pod limits after those of its containers: shares, then limits; decreases first", async () => {
  const { calls, resize } = rig(limits(30_000, 64 * Mi, 307), { limits: limits(40_000, 64 * Mi, 409) });
  const [a, b] = [has("100m", "32Mi"), has("300m", "32Mi")];
  await resize([change("a", a, has("150m", "32Mi")), change("b", b, has("150m", "32Mi"))]);
  assert.deepEqual(calls, [
    `id-b 15000 ${32 * Mi}`,
    "id-b has 150m/150m 32Mi/32Mi",
    `id-a 15000 ${32 * Mi}`,
    "id-a has 150m/150m 32Mi/32Mi",
    'pod {"cpuShares":307}',
    'pod {"cpuQuotaUs":30000,"cpuPeriodUs":100000}',
  ]);
});

test("memory.min of a pod follows its request after its containers are resized", async () => {
  const now = limits(20_000, 64 * Mi, 204);
  const { calls, resize } = rig({ ...now, memoryLowBytes: 48 * Mi }, { limits: now });
  const [from, to] = [has("200m", "64Mi"), has("200m", "64Mi")];
  const requests = (memory: string) => ({ cpu: "200m", memory });
  await resize([change("a", { ...from, requests: requests("32Mi") }, { ...to, requests: requests("48Mi") })]);
  assert.deepEqual(calls, [
    `id-a 20000 ${64 * Mi}`,
    "id-a has 200m/200m 48Mi/64Mi",
    `pod {"memoryLowBytes":${48 * Mi}}`,
  ]);
});

test("without a pod cgroup, resizes only the containers", async () => {
  const { calls, resize } = rig(limits(1, 1, 1));
  await resize([change("a", has("200m", "64Mi"), has("300m", "64Mi"))]);
  assert.deepEqual(calls, [`id-a 30000 ${64 * Mi}`, "id-a has 300m/300m 64Mi/64Mi"]);
});

test("for a restarting container, changes only the pod's cgroup and does not read its usage", async () => {
  const { calls, asked, resize } = rig(limits(30_000, 64 * Mi, 307), { limits: limits(20_000, 64 * Mi, 204) });
  await resize([], { resizePod: true });
  assert.deepEqual(asked, [], "the container has been killed already");
  assert.deepEqual(calls, ['pod {"cpuQuotaUs":30000,"cpuPeriodUs":100000}', 'pod {"cpuShares":307}']);
});

test("checkpoints each pod-level resource once it has been actuated", async () => {
  const { calls, resize } = rig({}, { limits: {} });
  await resize([], { resizePod: true, resources: has("2", "1Gi") });
  assert.deepEqual(calls, ["pod has undefined/undefined 1Gi/1Gi", "pod has 2/2 1Gi/1Gi"]);
});

test("a runtime error ends the resize; earlier changes are checkpointed, later changes are not made", async () => {
  const { calls, outcomes, resize } = rig(limits(30_000, 64 * Mi, 1), { limits: limits(40_000, 64 * Mi, 1) }, "id-b");
  const resizes = [
    change("a", has("300m", "32Mi"), has("100m", "32Mi")),
    change("b", has("100m", "32Mi"), has("200m", "32Mi")),
  ];
  await assert.rejects(resize(resizes), {
    code: "unknown",
    message: "rpc error: code = Unknown desc = the runtime will not",
  });
  assert.deepEqual(calls, [`id-a 10000 ${32 * Mi}`, "id-a has 100m/100m 32Mi/32Mi"]);
  assert.deepEqual(outcomes, [false]);
});

test("a memory limit below usage is rejected before anything changes, for pod and containers", async () => {
  const containers = new Map([["id-a", 20 * Mi]]);
  const used = { limits: limits(1, 64 * Mi, 1), memory: 40 * Mi, containers };
  const { calls, resize } = rig(limits(1, 32 * Mi, 1), used);
  await assert.rejects(resize([change("a", has("1", "32Mi"), has("2", "16Mi"))]), {
    message:
      `cannot decrease memory limits: [attempting to set pod memory limit (${32 * Mi}) below current usage (${40 * Mi}), ` +
      `attempting to set container "a" memory limit (${16 * Mi}) below current usage (${20 * Mi})]`,
  });
  assert.deepEqual(calls, []);
});

test("a new limit counts as a decrease, and is rejected if the usage is unknown", async () => {
  const unlimited = { requests: { memory: "8Mi" }, limits: {} };
  const limited = { requests: { memory: "8Mi" }, limits: { memory: "16Mi" } };
  const { resize } = rig({}, { limits: {} });
  await assert.rejects(resize([change("a", unlimited, limited)]), {
    message: 'cannot decrease memory limits: missing container "a" memory usage',
  });
  const measured = rig({}, { containers: new Map([["id-a", 15 * Mi]]) });
  await measured.resize([change("a", unlimited, limited)]);
  assert.equal(measured.calls[0], `id-a 0 ${16 * Mi}`);
});
