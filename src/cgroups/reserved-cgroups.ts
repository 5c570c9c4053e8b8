import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { EventSink } from "../pipeline.ts";
import { cgroupNames, cgroupPath, kubepodsCgroup, quotedNames } from "../pod/cgroup-path.ts";
import type { MemoryQos } from "../pod/memory-qos.ts";
import { nodeReference } from "../pod/reference.ts";
import { TargetError } from "../seams/provider.ts";
import type { NodeCgroups, OpenNodeCgroups } from "./node-cgroups.ts";
import { type Reservations, type TargetCapacity, reservedLimits } from "./allocatable-limits.ts";

/** Reservations, and the cgroups on which they are enforced. */
export interface Enforcement extends Reservations {
  /** KubeletConfiguration.enforceNodeAllocatable. */
  readonly enforceNodeAllocatable: readonly string[];
  readonly kubeReservedCgroup: string;
  readonly systemReservedCgroup: string;
}

export interface ReservedCgroupsDeps {
  readonly cgroups: OpenNodeCgroups;
  readonly capacity: Pick<TargetCapacity, "hugepages">;
  readonly enforcement: Enforcement;
  /** Set if feature gate MemoryQoS is on: reserved memory is protected (memory.min). */
  readonly memoryQos?: MemoryQos | undefined;
  readonly nodeName: string;
  readonly events: EventSink;
}

/** Cgroups of kubeReserved and systemReserved. */
export type ReservedCgroups = ReturnType<typeof createReservedCgroups>;

interface ReservedCgroup {
  readonly key: string;
  /** Name in the kubelet's messages. */
  readonly title: string;
  readonly what: string;
  readonly compressible: boolean;
}

/** Resources in the kubelet's order. */
const reservedCgroups: readonly ReservedCgroup[] = [
  { key: "system-reserved", title: "System Reserved Cgroup", what: "system reserved cgroup", compressible: false },
  { key: "kube-reserved", title: "Kube Reserved Cgroup", what: "kube reserved cgroup", compressible: false },
  {
    key: "system-reserved-compressible",
    title: "System Reserved Compressible Cgroup",
    what: "system reserved cgroup",
    compressible: true,
  },
  {
    key: "kube-reserved-compressible",
    title: "Kube Reserved Compressible Cgroup",
    what: "kube reserved cgroup",
    compressible: true,
  },
];

/** Creates the manager of the reserved cgroups that enforceNodeAllocatable names.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#enforcing-node-allocatable */
export function createReservedCgroups(deps: ReservedCgroupsDeps) {
  const { enforceNodeAllocatable } = deps.enforcement;
  const due = reservedCgroups.filter(({ key }) => enforceNodeAllocatable.includes(key));
  /** Limits the reserved cgroups to the reservations, once.
   *  @throws TargetError with the kubelet's text if a cgroup does not exist, or cannot be limited; unavailable while the target or its
   *  runtime does not respond. */
  const limit = async (signal: AbortSignal) => {
    if (due.length > 0) await limitAll(deps, due, signal);
    due.length = 0;
  };
  return {
    limit,
    /** Like `limit`, but leaves the work to a later call if the target or its runtime does not respond. @throws TargetError as above. */
    limitIfAvailable: (signal: AbortSignal) =>
      limit(signal).catch((error: unknown) => {
        if (!hasCode(error, "unavailable", "deadline_exceeded")) throw error;
      }),
  };
}

/** @throws failed_precondition, with the kubelet's text, if the target cannot limit process IDs. */
export function refusePids({ limitsPids }: Pick<NodeCgroups["cgroups"], "limitsPids">): void {
  if (limitsPids) return;
  throw new CodedError("failed_precondition", "cannot set pids limit: container could not join or create cgroup");
}

async function limitAll(deps: ReservedCgroupsDeps, due: readonly ReservedCgroup[], signal: AbortSignal): Promise<void> {
  const { enforcement, events, capacity } = deps;
  const node = nodeReference(deps.nodeName);
  const { cgroups, layout } = await deps.cgroups(signal);
  // With cgroup v2, creating the pods' cgroup enables all controllers for children of the root, including the reserved cgroups: the
  // kubelet creates it first.
  await cgroups.ensure(kubepodsCgroup(layout), {}, signal);
  for (const { key, title, what, compressible } of due) {
    const system = key.startsWith("system");
    const given = system ? enforcement.systemReservedCgroup : enforcement.kubeReservedCgroup;
    const reserved = system ? enforcement.systemReserved : enforcement.kubeReserved;
    const names = cgroupNames(given, layout.driver);
    const path = cgroupPath(names, layout.driver);
    try {
      const fault = await cgroups.validate({ path, name: quotedNames(names) }, signal);
      if (fault !== undefined) throw new Error(fault);
      const share = reservedLimits(reserved, capacity, compressible);
      const kept = deps.memoryQos && share.memoryBytes !== undefined && { memoryMinBytes: share.memoryBytes };
      await cgroups.ensure(path, { ...share, ...kept }, signal);
      if (share.pids !== undefined) refusePids(cgroups);
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable")) throw error;
      const message = `Failed to enforce ${title} Limits on ${JSON.stringify(given)}: ${messageOf(error)}`;
      events.event(node, "Warning", "FailedNodeAllocatableEnforcement", message);
      throw new TargetError("NodeAllocatable", "failed_precondition", message, { cause: error });
    }
    events.event(node, "Normal", "NodeAllocatableEnforced", `Updated limits on ${what} ${given}`);
  }
}
