import type { HostFacts } from "../host/facts.ts";
import { hasCode } from "../lib/errors.ts";
import type { Service } from "../lib/service-group.ts";
import { createCgroupLayout } from "../cgroups/cgroup-layout.ts";
import { createNodeAllocatable } from "../cgroups/node-allocatable.ts";
import { createNodeCgroups } from "../cgroups/node-cgroups.ts";
import { pageSizes } from "../cgroups/allocatable-limits.ts";
import { createPodHostResources } from "../cgroups/pod-host-resources.ts";
import { createReservedCgroups } from "../cgroups/reserved-cgroups.ts";
import { createQosCgroups } from "../cgroups/qos-cgroups.ts";
import type { PodSettings } from "../runtime/prepare.ts";
import type { PodCgroups } from "../runtime/actuate-resources.ts";
import type { PodHostResources } from "../sync/passes.ts";
import type { AllocationStages } from "./allocation.ts";
import type { Cluster, NodeContext, ObservedTarget, TargetCgroups } from "./deps.ts";
import type { Placeholders } from "./placeholders.ts";
import { enforcement, memoryQos } from "./settings.ts";

/** Opens the target's cgroups, and limits the reserved cgroups as configured; if the runtime does not respond yet, they are limited
 *  later. @throws TargetError if a reserved cgroup cannot be limited. */
export async function openTargetCgroups(
  { config, target, metrics, clock, log, signal }: NodeContext,
  { events }: Pick<Cluster, "events">,
  capacity: HostFacts,
): Promise<TargetCgroups> {
  const { host, runtime } = target;
  const { kubelet, nodeName, rootDir } = config;
  const measures = metrics.measures.cgroups;
  const layout = createCgroupLayout({
    runtime,
    kubelet,
    onOutdatedRuntime: () => measures.runtimeOutdated(),
    clock,
    log,
  });
  const open = createNodeCgroups({ host, layout, rootDir, measures, clock, log });
  const enforced = enforcement(config);
  const reserved = createReservedCgroups({
    cgroups: open,
    capacity,
    enforcement: enforced,
    memoryQos: memoryQos(kubelet),
    nodeName,
    events,
  });
  await reserved.limit(signal).catch((error: unknown) => {
    if (!hasCode(error, "unavailable", "deadline_exceeded")) throw error;
  });
  return { layout, open, reserved, enforced };
}

/** Managers of the node's cgroups. */
export interface CgroupStages {
  /** Data directories and cgroups of pods. */
  readonly hostResources: PodHostResources & { readonly groups: PodCgroups };
  /** Enforces the node's allocatable resources and the reservations. */
  readonly nodeAllocatable: Service;
}

interface CgroupParts extends Pick<AllocationStages, "allocations"> {
  readonly placeholders: Placeholders;
  readonly settings: PodSettings;
}

/** Creates the managers of pod cgroups, of QoS cgroups, and of the cgroup of all pods. */
export function createCgroupStages(
  { config, target, metrics, clock, log, hand }: NodeContext,
  { events }: Cluster,
  { agent, cgroups: { open, reserved, enforced }, waitForTarget }: ObservedTarget,
  { allocations, placeholders, settings }: CgroupParts,
): CgroupStages {
  const { host, runtime } = target;
  const { kubelet, nodeName, rootDir } = config;
  const { desired, ...columns } = hand("cgroups");
  const sizes = pageSizes(agent.facts);
  const pods = { list: () => placeholders.without(desired.list()) };
  const qosCgroups = createQosCgroups({
    ...columns,
    cgroups: open,
    pods,
    allocatedPod: allocations.allocatedPod,
    pageSizes: sizes,
    memoryQos: settings.memoryQos,
    measures: metrics.measures.cgroups,
  });
  const hostResources = createPodHostResources({
    host,
    rootDir,
    cgroups: open,
    qosCgroups,
    settings,
    podPidsLimit: kubelet.podPidsLimit,
    memoryQos: settings.memoryQos,
    pageSizes: sizes,
    swap: { ...agent.facts, limitedSwap: settings.limitedSwap },
    runtime,
    events,
    log,
  });
  const nodeAllocatable = createNodeAllocatable({
    cgroups: open,
    qosCgroups,
    pods: hostResources,
    reserved,
    capacity: agent.facts,
    enforcement: enforced,
    nodeName,
    events,
    ...(waitForTarget && { waitForTarget }),
    clock,
    log,
  });
  return { hostResources, nodeAllocatable };
}
