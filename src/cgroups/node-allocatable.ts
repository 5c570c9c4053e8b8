import type { HostFacts } from "../host/facts.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { WaitForTarget } from "../pipeline.ts";
import { cgroupNames, kubepodsCgroup, quotedNames } from "../pod/cgroup-path.ts";
import { nodeReference } from "../pod/reference.ts";
import { TargetError } from "../seams/provider.ts";
import type { NodeCgroups } from "./node-cgroups.ts";
import { type TargetCapacity, allPodsLimits } from "./allocatable-limits.ts";
import { type ReservedCgroups, refusePids, type ReservedCgroupsDeps } from "./reserved-cgroups.ts";
import type { QosCgroups } from "./qos-cgroups.ts";
import { createFailureLog, retryUntilDone } from "../lib/retry.ts";

export interface NodeAllocatableDeps
  extends Pick<ReservedCgroupsDeps, "cgroups" | "enforcement" | "nodeName" | "events">,
    ClockAndLog {
  readonly qosCgroups: Pick<QosCgroups, "reapplyLimits">;
  readonly pods: { reapplyLimits(signal: AbortSignal): Promise<void> };
  readonly reserved: ReservedCgroups;
  readonly capacity: TargetCapacity & Pick<HostFacts, "cpuList">;
  readonly waitForTarget: WaitForTarget | undefined;
}

/** Period of the kubelet, milliseconds. */
const intervalMs = 60_000;
/** Retry delay for reading the runtime's cgroup driver, milliseconds. */
const retryDelayMs = 2_000;

/** Enforces node allocatable: limits the cgroup of all pods, and the reserved cgroups; and repairs limits of pod cgroups that others have
 *  changed. The kernel rejects a memory limit below the pods' current usage, so the limit is retried until they use less.
 *  @throws TargetError with the kubelet's text if a reserved cgroup does not exist, or cannot be limited.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#enforcing-node-allocatable */
export function createNodeAllocatable(deps: NodeAllocatableDeps): Runnable {
  const { qosCgroups, pods, reserved, events, clock, log } = deps;
  const node = nodeReference(deps.nodeName);
  let enforced = false;
  const limitPods = async ({ cgroups, layout, version }: NodeCgroups, signal: AbortSignal) => {
    // systemd disables the cpuset controller for child cgroups unless it is used. The kubelet does the same for this reason.
    const cpus = layout.driver === "systemd" && version === 2 && { cpus: deps.capacity.cpuList };
    try {
      await cgroups.ensure(kubepodsCgroup(layout), { ...podsLimits(deps), ...cpus }, signal);
      refusePids(cgroups);
      if (!enforced)
        events.event(node, "Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods");
      enforced = true;
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable", "permission_denied")) throw error;
      enforced = false;
      const name = quotedNames(cgroupNames(kubepodsCgroup(layout), layout.driver));
      const message = `Failed to update Node Allocatable Limits ${name}: ${messageOf(error)}`;
      events.event(node, "Warning", "FailedNodeAllocatableEnforcement", message);
    }
    await qosCgroups.reapplyLimits(signal);
    await pods.reapplyLimits(signal);
  };
  const refusals = createFailureLog(log, "cannot limit all pods together: permission denied to create cgroups");
  const enforcementLoop = runPeriodically(
    { ...deps, name: "node-allocatable", intervalMs: intervalMs },
    async (signal) => {
      const opened = await deps.cgroups(signal);
      if (!opened.layout.perQos) return;
      try {
        await limitPods(opened, signal);
      } catch (error) {
        if (!hasCode(error, "permission_denied")) throw error;
        refusals.failed(error);
      }
    },
  );
  const isFinal = (error: unknown) => error instanceof TargetError;
  const retries = { message: "cannot set cgroup limits; retrying", isFinal, clock, log };
  return {
    name: enforcementLoop.name,
    async run(signal) {
      await retryUntilDone({ ...retries, delayMs: () => retryDelayMs }, () => deps.cgroups(signal), signal);
      await retryUntilDone({ ...retries, delayMs: () => intervalMs }, () => reserved.limit(signal), signal);
      await enforcementLoop.run(signal);
    },
  };
}

/** Limits of all pods together: the target's capacity, less the reservations if enforceNodeAllocatable includes `pods`. */
function podsLimits({ capacity, enforcement }: NodeAllocatableDeps) {
  const limited = enforcement.enforceNodeAllocatable.includes("pods");
  return allPodsLimits(capacity, limited ? enforcement : { kubeReserved: {}, systemReserved: {} });
}
