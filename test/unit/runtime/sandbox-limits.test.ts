import assert from "node:assert/strict";
import { test } from "node:test";
import type { UpdatePodSandboxResourcesRequest } from "../../../src/gen/cri.ts";
import type { CgroupLimits } from "../../../src/host/cgroups.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createPodLimits } from "../../../src/runtime/sandbox-limits.ts";
import { aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const Mi = 2 ** 20;
const current: CgroupLimits = { cpuQuotaUs: 50_000, cpuPeriodUs: 100_000, cpuShares: 512, memoryBytes: 96 * Mi };
const overhead = { cpu: "250m", memory: "32Mi" };

/** A runtime and a pod's cgroup that record their calls. */
function rig(answer: (nth: number) => Error | undefined = () => undefined, sandboxId: string | undefined = "box") {
  const calls: string[] = [];
  const refusals: (Error | undefined)[] = [];
  let told = 0;
  const text = ({ podSandboxId, resources, overhead: own }: UpdatePodSandboxResourcesRequest) =>
    `${podSandboxId}: ${resources?.cpuQuota}/${resources?.cpuPeriod} ${resources?.cpuShares} ${Number(resources?.memoryLimitInBytes) / Mi}Mi, ` +
    `itself ${own?.cpuShares}`;
  const setPodLimits = createPodLimits(
    {
      runtime: {
        async updatePodSandboxResources(request) {
          calls.push(text(request));
          const error = answer(told++);
          if (error) throw error;
        },
      },
      groups: {
        async set(_pod, limits) {
          const refusal = refusals.shift();
          if (refusal) throw refusal;
          calls.push(`set ${JSON.stringify(limits)}`);
        },
      },
      sandboxOverhead: () => ({ cpuShares: 256n }),
      log: silentLog(),
    },
    aPod({ overhead }),
    sandboxId,
    current,
  );
  return { calls, refusals, setPodLimits };
}

test("before each change of the cgroup, passes all limits without the pod's overhead to the runtime", async () => {
  const { calls, setPodLimits } = rig();
  await setPodLimits("memory", { memoryBytes: 128 * Mi }, never);
  await setPodLimits("cpu", { cpuQuotaUs: 75_000, cpuPeriodUs: 100_000 }, never);
  assert.deepEqual(calls, [
    "box: 25000/100000 256 96Mi, itself 256",
    `set {"memoryBytes":${128 * Mi}}`,
    "box: 50000/100000 256 96Mi, itself 256",
    'set {"cpuQuotaUs":75000,"cpuPeriodUs":100000}',
  ]);
});

test("changes nothing if the runtime refuses, and reports why", async () => {
  const { calls, setPodLimits } = rig(() => new CodedError("resource_exhausted", "no memory to plug"));
  await assert.rejects(setPodLimits("memory", { memoryBytes: 128 * Mi }, never), {
    message:
      "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected: updatePodSandboxResources " +
      'failed for sanboxID "box": rpc error: code = ResourceExhausted desc = no memory to plug',
  });
  assert.equal(calls.filter((call) => call.startsWith("set")).length, 0);
});

test("continues if the runtime does not implement the call, which is tried only once", async () => {
  for (const error of [
    new CodedError("unimplemented", "unknown method UpdatePodSandboxResources"),
    new CodedError("unknown", "not implemented yet"),
  ]) {
    const { calls, setPodLimits } = rig(() => error);
    await setPodLimits("memory", { memoryBytes: 128 * Mi }, never);
    await setPodLimits("cpu", { cpuShares: 600 }, never);
    assert.deepEqual(calls.slice(1), [`set {"memoryBytes":${128 * Mi}}`, 'set {"cpuShares":600}']);
  }
});

test("restores the runtime's resources if the cgroup cannot be changed", async () => {
  const { calls, refusals, setPodLimits } = rig();
  refusals.push(new Error("device or resource busy"));
  await assert.rejects(setPodLimits("memory", { memoryBytes: 128 * Mi }, never), {
    message: "device or resource busy",
  });
  assert.deepEqual(calls, ["box: 25000/100000 256 96Mi, itself 256", "box: 25000/100000 256 64Mi, itself 256"]);
});
