import { createAdmission } from "../admission/chain.ts";
import { createPreemption } from "../admission/preemption.ts";
import { createAllocations } from "../allocation/allocations.ts";
import { createResizes } from "../allocation/resizes.ts";
import { pageSizes } from "../cgroups/allocatable-limits.ts";
import { createCgroupLayout } from "../cgroups/cgroup-layout.ts";
import { createNodeAllocatable } from "../cgroups/node-allocatable.ts";
import { createNodeCgroups } from "../cgroups/node-cgroups.ts";
import { createPodHostResources } from "../cgroups/pod-host-resources.ts";
import { createQosCgroups } from "../cgroups/qos-cgroups.ts";
import { createReservedCgroups } from "../cgroups/reserved-cgroups.ts";
import type { HostFacts } from "../host/facts.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { DaemonSetPolicy } from "../node/daemon-set-policy.ts";
import type { Node } from "../objects.ts";
import type { Admission } from "../pipeline.ts";
import type { PodSettings } from "../runtime/configure-container.ts";
import { createTargetFacts, usesSwap } from "../runtime/target-facts.ts";
import type { Cluster, NodeContext, ObservedTarget, TargetCgroups } from "./deps.ts";
import { enforcement, allowsSwap, memoryQos } from "./settings.ts";

/** Delay and interval of retries of pending resizes: the kubelet's, milliseconds. */
const firstRetryDelayMs = 30_000;
const retryIntervalMs = 180_000;

/** Admission, allocations and resizes of pods. */
export type PodAllocation = ReturnType<typeof createPodAllocation>;

export function createPodAllocation(context: NodeContext, cluster: Cluster, observed: ObservedTarget) {
  const { config, target, metrics, partsOf, privateColumn } = context;
  const { fs } = target.host;
  const admission = createNodeAdmission(context, cluster, observed);
  const allocations = createAllocations({
    ...partsOf("allocations"),
    fs,
    rootDir: config.rootDir,
    privateColumn,
  });
  /** Facts about the target, read once. */
  const facts = createTargetFacts(fs);
  const resizes = createResizes({
    ...partsOf("resizes"),
    privateColumn,
    allocations,
    admission,
    hasStaticCpus: observed.cpus !== undefined,
    hasStaticMemory: observed.memory !== undefined,
    usesSwap: (signal) => usesSwap(allowsSwap(config.kubelet), facts, signal),
    events: cluster.events,
    measures: metrics.measures.resizes,
  });
  return { admission, allocations, resizes, facts };
}

/** Creates the admission chain, which admits pods and resizes. */
function createNodeAdmission(
  { config, client, metrics, partsOf }: NodeContext,
  { nodes, events }: Cluster,
  { agent, topology, managers }: ObservedTarget,
): Admission {
  const preempt = createPreemption({ ...partsOf("preemption"), events, measures: metrics.measures });
  const { pressure, ...parts } = partsOf("admission");
  return createAdmission({
    ...parts,
    node: nodes,
    fetchNode: (signal) => client.get<Node>(`/api/v1/nodes/${config.nodeName}`, { signal }),
    ownNode: agent.ownNode,
    pressure: () => pressure.get()?.pressure,
    allocatable: agent.allocatable,
    topology,
    managers,
    facts: agent.facts,
    allowedUnsafeSysctls: config.kubelet.allowedUnsafeSysctls,
    preempt,
  });
}

/** Creates the periodic retry of pending resizes. */
export function createResizeRetry({ partsOf }: NodeContext): Runnable {
  const { signals, clock, log } = partsOf("resizeRetry");
  const options = { name: "resizes", intervalMs: retryIntervalMs, initialDelayMs: firstRetryDelayMs, clock, log };
  return runPeriodically(options, () => signals.retryPendingResizes.send("periodic_retry"));
}

/** Opens the target's cgroups, and limits the reserved cgroups as configured; if the runtime does not respond yet, they are limited
 *  later. @throws TargetError if a reserved cgroup cannot be limited. */
export async function openTargetCgroups(
  { config, target, metrics, clock, log, signal }: NodeContext,
  { events }: Cluster,
  capacity: HostFacts,
): Promise<TargetCgroups> {
  const { host, runtime } = target;
  const { kubelet, nodeName, rootDir } = config;
  const { cgroupDriver, cgroupRoot, cgroupsPerQOS } = kubelet;
  const measures = metrics.measures.cgroups;
  const layout = createCgroupLayout({
    runtime,
    kubelet: { cgroupDriver, cgroupRoot, cgroupsPerQOS },
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
  await reserved.limitIfAvailable(signal);
  return { layout, open, reserved, enforced };
}

export type CgroupManagers = ReturnType<typeof createCgroupManagers>;

/** Creates the managers of pod cgroups, of QoS cgroups, and of the cgroup of all pods. */
export function createCgroupManagers(
  { config, target, metrics, clock, log, partsOf }: NodeContext,
  { events }: Cluster,
  { agent, cgroups: { open, reserved, enforced }, waitForTarget }: ObservedTarget,
  { allocations }: PodAllocation,
  { daemonSets, settings }: { readonly daemonSets: DaemonSetPolicy; readonly settings: PodSettings },
) {
  const { host, runtime } = target;
  const { kubelet, nodeName, rootDir } = config;
  const { memoryBytes, swapBytes } = agent.facts;
  const { desired, ...parts } = partsOf("cgroups");
  const sizes = pageSizes(agent.facts);
  const qosCgroups = createQosCgroups({
    ...parts,
    cgroups: open,
    pods: { list: () => daemonSets.withoutPlaceholders(desired.list()) },
    allocatedPod: allocations.allocatedPod,
    pageSizes: sizes,
    memoryQos: settings.memoryQos,
    measures: metrics.measures.cgroups,
  });
  /** Data directories and cgroups of pods. */
  const hostResources = createPodHostResources({
    host,
    rootDir,
    cgroups: open,
    qosCgroups,
    settings,
    podPidsLimit: kubelet.podPidsLimit,
    memoryQos: settings.memoryQos,
    pageSizes: sizes,
    swap: { memoryBytes, swapBytes, limitedSwap: settings.limitedSwap },
    runtime,
    events,
    log,
  });
  /** Enforces the node's allocatable resources and the reservations. */
  const nodeAllocatable = createNodeAllocatable({
    cgroups: open,
    qosCgroups,
    pods: hostResources,
    reserved,
    capacity: agent.facts,
    enforcement: enforced,
    nodeName,
    events,
    waitForTarget,
    clock,
    log,
  });
  return { hostResources, nodeAllocatable };
}
