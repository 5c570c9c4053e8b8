import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { EventSink } from "../pipeline.ts";
import { cgroupNames, cgroupPath, podsCgroup, quotedNames } from "../pod/cgroup-path.ts";
import type { MemoryQos } from "../pod/memory-qos.ts";
import { nodeReference } from "../pod/reference.ts";
import { TargetError } from "../seams/provider.ts";
import type { NodeCgroups, OpenNodeCgroups } from "./node-cgroups.ts";
import { type Reservations, type TargetCapacity, reservedShare } from "./node-share.ts";

/** Resources that are kept for the target's other processes, and the cgroups that hold these to them. */
export interface Enforcement extends Reservations {
  /** KubeletConfiguration.enforceNodeAllocatable. */
  readonly enforceNodeAllocatable: readonly string[];
  /** Cgroups of those processes. */
  readonly kubeReservedCgroup: string;
  readonly systemReservedCgroup: string;
}

export interface ReservedCgroupsDeps {
  readonly cgroups: OpenNodeCgroups;
  readonly capacity: Pick<TargetCapacity, "hugepages">;
  readonly enforcement: Enforcement;
  /** Feature gate MemoryQoS, when it is on: what is reserved is kept for them. */
  readonly memoryQos?: MemoryQos | undefined;
  readonly nodeName: string;
  readonly events: EventSink;
}

/** Cgroups of the target's other processes. */
export interface ReservedCgroups {
  /** Limits them to what is reserved; does nothing once that is done.
   *  @throws TargetError in the kubelet's words when one is not there, or takes no limits; unavailable while the target or its runtime
   *  does not answer. */
  limit(signal: AbortSignal): Promise<void>;
}

interface Reserved {
  readonly key: string;
  /** In the kubelet's messages. */
  readonly title: string;
  readonly what: string;
  readonly compressible: boolean;
}

/** The kubelet's order. */
const reservedCgroups: readonly Reserved[] = [
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

/** Limits the cgroups of the target's other processes that enforceNodeAllocatable names.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#enforcing-node-allocatable */
export function createReservedCgroups(deps: ReservedCgroupsDeps): ReservedCgroups {
  const { enforceNodeAllocatable } = deps.enforcement;
  const due = reservedCgroups.filter(({ key }) => enforceNodeAllocatable.includes(key));
  return {
    async limit(signal) {
      if (due.length > 0) await limitAll(deps, due, signal);
      due.length = 0;
    },
  };
}

/** @throws failed_precondition, in the kubelet's words, where the target cannot limit process IDs. */
export function refusePids({ limitsPids }: Pick<NodeCgroups["cgroups"], "limitsPids">): void {
  if (limitsPids) return;
  throw new CodedError("failed_precondition", "cannot set pids limit: container could not join or create cgroup");
}

async function limitAll(deps: ReservedCgroupsDeps, due: readonly Reserved[], signal: AbortSignal): Promise<void> {
  const { enforcement, events, capacity } = deps;
  const node = nodeReference(deps.nodeName);
  const { cgroups, layout } = await deps.cgroups(signal);
  // With version 2 the pods' cgroup has the root hand down all controllers, to the reserved ones as well: the kubelet makes it first.
  await cgroups.ensure(podsCgroup(layout), {}, signal);
  for (const { key, title, what, compressible } of due) {
    const system = key.startsWith("system");
    const given = system ? enforcement.systemReservedCgroup : enforcement.kubeReservedCgroup;
    const reserved = system ? enforcement.systemReserved : enforcement.kubeReserved;
    const names = cgroupNames(given, layout.driver);
    const path = cgroupPath(names, layout.driver);
    try {
      const fault = await cgroups.fault({ path, name: quotedNames(names) }, signal);
      if (fault !== undefined) throw new Error(fault);
      const share = reservedShare(reserved, capacity, compressible);
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
