import { LinuxContainerResources } from "../gen/cri.ts";
import type { CgroupLimits } from "../host/cgroups.ts";
import { codeOf, hasCode, messageOf, CodedError } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import type { ResizableResource } from "../pod/pod-resources.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import { milliCpuToShares } from "../pod/resources.ts";
import type { Sandboxes } from "../seams/runtime.ts";

export interface SandboxLimitsDeps {
  readonly runtime: Pick<Sandboxes, "updatePodSandboxResources">;
  readonly groups: {
    /** Sets the given limits of a pod's cgroup; others stay unchanged. */
    set(pod: Pod, limits: CgroupLimits, signal: AbortSignal): Promise<void>;
  };
  readonly sandboxOverhead: (pod: Pod) => Partial<LinuxContainerResources>;
  readonly log: Logger;
}

export type SetPodLimits = (resource: ResizableResource, limits: CgroupLimits, signal: AbortSignal) => Promise<void>;

/** Returns a function that sets limits of a pod's cgroup once the runtime has agreed: a runtime with a virtual machine per pod resizes it.
 *  A runtime that does not implement the call is not asked again.
 *  @param sandboxId the pod's sandbox; undefined if it has none. @param current limits in force.
 *  @throws Error in the kubelet's words if the runtime refuses.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources */
export function createPodLimits(
  { runtime, groups, sandboxOverhead, log }: SandboxLimitsDeps,
  pod: Pod,
  sandboxId: string | undefined,
  current: CgroupLimits,
): SetPodLimits {
  let [inForce, isImplemented] = [current, true];
  const tell = async (limits: CgroupLimits, signal: AbortSignal): Promise<void> => {
    if (!runtime.updatePodSandboxResources || sandboxId === undefined || !isImplemented) return;
    const overhead = LinuxContainerResources.fromPartial(sandboxOverhead(pod));
    const request = { podSandboxId: sandboxId, overhead, resources: withoutOverhead(limits, pod) };
    try {
      await runtime.updatePodSandboxResources(request, signal);
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      isImplemented = false;
    }
  };
  return async (resource, limits, signal) => {
    const wanted = { ...inForce, ...limits };
    await tell(wanted, signal).catch((error: unknown) => {
      const text = `updatePodSandboxResources failed for sanboxID ${JSON.stringify(sandboxId)}: ${runtimeErrorText(error)}`;
      const notified = `failed to notify runtime for UpdatePodSandboxResources (resource=${resource}); resize rejected`;
      throw new CodedError(codeOf(error), `${notified}: ${text}`, { cause: error });
    });
    try {
      await groups.set(pod, limits, signal);
    } catch (error) {
      await tell(inForce, signal).catch((err: unknown) => {
        if (!signal.aborted) log.warn({ err, resource, uid: pod.metadata.uid }, "cannot revert a pod's resize");
      });
      throw error;
    }
    inForce = wanted;
  };
}

/** True if the runtime does not implement the call, which containerd before 2.3 reports without a specific code. */
function isUnimplemented(error: unknown): boolean {
  return hasCode(error, "unimplemented") || (hasCode(error, "unknown") && messageOf(error).includes("not implemented"));
}

/** The limits of a pod's cgroup without the pod's overhead, as CRI resources. */
function withoutOverhead(limits: CgroupLimits, { spec: { overhead = {} } }: Pod): LinuxContainerResources {
  const { cpuQuotaUs: quota, cpuPeriodUs: period, cpuShares: shares, memoryBytes: memory } = limits;
  const milli = quantityMilli(overhead["cpu"] ?? "0");
  const bytes = quantityValue(overhead["memory"] ?? "0");
  const isLimited = quota !== undefined && quota > 0 && period !== undefined;
  const quotaOfPods = isLimited ? quota - Math.trunc((milli * period) / 1000) : quota;
  const sharesOfPods =
    milli > 0 && shares !== undefined ? milliCpuToShares(Math.ceil((shares * 1000) / 1024) - milli) : shares;
  return LinuxContainerResources.fromPartial({
    ...(quotaOfPods !== undefined && { cpuQuota: BigInt(quotaOfPods) }),
    ...(period !== undefined && { cpuPeriod: BigInt(period) }),
    ...(sharesOfPods !== undefined && { cpuShares: BigInt(sharesOfPods) }),
    ...(memory !== undefined && { memoryLimitInBytes: BigInt(memory - bytes) }),
  });
}
