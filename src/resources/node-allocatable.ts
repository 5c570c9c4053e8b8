import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { EventSink, Presence } from "../pipeline.ts";
import { cgroupNames, cgroupPath, podsCgroup } from "../pod/cgroup-path.ts";
import { nodeReference } from "../pod/reference.ts";
import { TargetError } from "../seams/provider.ts";
import type { NodeCgroups, OpenNodeCgroups } from "./node-cgroups.ts";
import { type Reservations, type TargetCapacity, podsShare, reservedShare } from "./node-share.ts";

/** What the target's other processes are to have, and what enforces it. */
export interface Enforcement extends Reservations {
  /** KubeletConfiguration.enforceNodeAllocatable. */
  readonly enforceNodeAllocatable: readonly string[];
  /** Cgroups of those processes. */
  readonly kubeReservedCgroup: string;
  readonly systemReservedCgroup: string;
}

export interface NodeAllocatableDeps {
  readonly cgroups: OpenNodeCgroups;
  readonly capacity: TargetCapacity;
  readonly enforcement: Enforcement;
  readonly nodeName: string;
  readonly events: EventSink;
  readonly presence?: Presence;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The kubelet's period, milliseconds. */
const periodMs = 60_000;

/** Limits all pods together, and those of the target's own processes that are to be limited, to their shares; and keeps the pods' cgroups
 *  true, whoever changes them. While the pods use more memory than they shall have the kernel refuses the limit: it is set once they use
 *  less.
 *  @throws TargetError in the kubelet's words when a reserved cgroup is not there, or takes no limits.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#enforcing-node-allocatable */
export function createNodeAllocatable(deps: NodeAllocatableDeps): Service {
  const { events, log } = deps;
  const node = nodeReference(deps.nodeName);
  let inForce = false;
  const limitPods = async ({ cgroups, layout, tiers }: NodeCgroups, signal: AbortSignal) => {
    try {
      await cgroups.ensure(podsCgroup(layout), podsLimits(deps), signal);
      if (!inForce)
        events.event(node, "Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods");
      inForce = true;
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable", "permission_denied")) throw error;
      inForce = false;
      const name = quoted(cgroupNames(podsCgroup(layout), layout.driver));
      const message = `Failed to update Node Allocatable Limits ${name}: ${messageOf(error)}`;
      events.event(node, "Warning", "FailedNodeAllocatableEnforcement", message);
    }
    await tiers.repair(signal);
  };
  let told = false;
  const rounds = patrol({ ...deps, name: "node-allocatable", everyMs: periodMs }, async (signal) => {
    const opened = await deps.cgroups(signal);
    if (!opened.layout.perQos) return;
    try {
      await limitPods(opened, signal);
    } catch (error) {
      if (!hasCode(error, "permission_denied")) throw error;
      if (!told) log.warn({ err: error }, "no cgroup limits all pods together: the target's user may not make one");
      told = true;
    }
  });
  return {
    name: rounds.name,
    async run(signal) {
      await onceReached(deps, () => limitReserved(deps, signal), signal);
      await rounds.run(signal);
    },
  };
}

/** Repeats work until it is done, or the node ends. @throws TargetError, which does not pass by itself. */
async function onceReached(
  { clock, log }: NodeAllocatableDeps,
  work: () => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof TargetError) throw error;
      log.warn({ err: error }, "limits of reserved cgroups could not be set, will try again");
    }
    await clock.sleep(periodMs, signal).catch(() => undefined);
  }
}

/** Limits of all pods together: everything that the target has, unless `pods` are to be limited to the rest. */
function podsLimits({ capacity, enforcement }: NodeAllocatableDeps) {
  const limited = enforcement.enforceNodeAllocatable.includes("pods");
  return podsShare(capacity, limited ? enforcement : { kubeReserved: {}, systemReserved: {} });
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

async function limitReserved(deps: NodeAllocatableDeps, signal: AbortSignal): Promise<void> {
  const { enforcement, events, capacity } = deps;
  const due = reservedCgroups.filter(({ key }) => enforcement.enforceNodeAllocatable.includes(key));
  if (due.length === 0) return;
  const node = nodeReference(deps.nodeName);
  const { cgroups, layout } = await deps.cgroups(signal);
  for (const { key, title, what, compressible } of due) {
    const system = key.startsWith("system");
    const given = system ? enforcement.systemReservedCgroup : enforcement.kubeReservedCgroup;
    const reserved = system ? enforcement.systemReserved : enforcement.kubeReserved;
    const names = cgroupNames(given, layout.driver);
    const path = cgroupPath(names, layout.driver);
    try {
      const missing = await cgroups.missing(path, signal);
      if (missing.length > 0) throw new Error(`cgroup ${quoted(names)} has some missing paths: ${missing.join(", ")}`);
      await cgroups.ensure(path, reservedShare(reserved, capacity, compressible), signal);
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable")) throw error;
      const message = `Failed to enforce ${title} Limits on ${JSON.stringify(given)}: ${messageOf(error)}`;
      events.event(node, "Warning", "FailedNodeAllocatableEnforcement", message);
      throw new TargetError("NodeAllocatable", "failed_precondition", message, { cause: error });
    }
    events.event(node, "Normal", "NodeAllocatableEnforced", `Updated limits on ${what} ${given}`);
  }
}

/** Names as the kubelet's messages have them: `["kubepods" "burstable"]`. */
function quoted(names: readonly string[]): string {
  return `[${names.map((name) => JSON.stringify(name)).join(" ")}]`;
}
