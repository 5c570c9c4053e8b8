import { gateEnabled } from "../config/feature-gates.ts";
import { type CpuManager, createCpuManager } from "../cpus/manager.ts";
import { openPolicy } from "../cpus/open.ts";
import { writeCpuState } from "../cpus/state-file.ts";
import { type DraManager, createDraManager } from "../dra/manager.ts";
import { createDeviceManager, type DeviceManager } from "../devices/manager.ts";
import { type MemoryManager, createMemoryManager } from "../memory-manager/manager.ts";
import { openMemory } from "../memory-manager/open.ts";
import { writeMemoryState } from "../memory-manager/state-file.ts";
import {
  claimCheckpoint,
  managerCheckpoints,
  pluginFiles,
  pluginDirectory,
  podResourcesDirectory,
  podsApiDirectory,
  podsApiSocket,
} from "../host/layout.ts";
import { throttle } from "../lib/throttle.ts";
import { isAlive } from "../pod/sandbox.ts";
import type { ResourceSettings } from "../pod/resources.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { PodIds } from "../runtime/ports.ts";
import { createPodIds } from "../user-namespaces/pod-ids.ts";
import type { NodeContext } from "./deps.ts";
import { monitoredPods } from "../devices/monitored-pods.ts";
import type { Alignment } from "../topology/aligned-allocation.ts";
import { createTopologyManager } from "../topology/manager.ts";
import { openAlignment } from "../topology/open.ts";
import { cpuSettings, managesPodLevel, memorySettings, topologySettings } from "./settings.ts";

/** Minimum interval between Node updates caused by device plugins, milliseconds. */
const deviceUpdateIntervalMs = 1_000;

/** Number of IDs of a pod with a user namespace: the kubelet's default. */
const defaultIdsPerPod = 65_536;

export type NodeResources = Awaited<ReturnType<typeof createResourceManagers>>;

/** Creates the node's resource managers. To add one: its folder, an entry in kubelet/wiring.ts, a line here, and its files below.
 *  @throws TargetError if the target does not fit the configuration; unavailable. */
export async function createResourceManagers(context: NodeContext) {
  // The first two are undefined without the policy static.
  const [cpus, memory, alignment] = await Promise.all([
    createNodeCpuManager(context),
    createNodeMemoryManager(context),
    openNodeAlignment(context),
  ]);
  /** Undefined for a standalone node: its pods have no claims. */
  const dra = context.standalone ? undefined : createNodeDraManager(context);
  const devices = createNodeDeviceManager(context, { cpus, memory, dra }, alignment);
  const podIds = createNodePodIds(context);
  /** All of them, in the order in which they allocate to each container. */
  const managers = [devices, ...(cpus ? [cpus] : []), ...(memory ? [memory] : []), ...(dra ? [dra] : []), podIds];
  const topology = createTopologyManager({
    alignment,
    managers,
    measures: context.metrics.measures.topology,
    clock: context.clock,
  });
  return { devices, cpus, memory, dra, podIds, managers, topology };
}

/** @returns undefined if the policy is none. */
async function openNodeAlignment({ config, target, signal }: NodeContext): Promise<Alignment | undefined> {
  const settings = topologySettings(config);
  return settings && openAlignment(settings, target.host, signal);
}

function createNodePodIds({ config, target, clock, log }: NodeContext): PodIds & ResourceManager {
  const { userNamespaces, maxPods } = config.kubelet;
  const { idsPerPod = defaultIdsPerPod } = userNamespaces;
  return createPodIds({
    host: target.host,
    rootDir: config.rootDir,
    settings: { idsPerPod, maxPods },
    clock,
    log,
  });
}

function createNodeDeviceManager(
  { config, target, metrics, clock, partsOf }: NodeContext,
  { cpus, memory, dra: claims }: Pick<NodeResources, "cpus" | "memory" | "dra">,
  alignment: Alignment | undefined,
): DeviceManager {
  const { desired, podCache, status, sourcesSynced, ...parts } = partsOf("devices");
  return createDeviceManager({
    ...parts,
    rootDir: config.rootDir,
    requestTimeoutMs: config.kubelet.runtimeRequestTimeout,
    host: target.host,
    onChange: throttle(() => parts.signals.nodeChanged.send(), deviceUpdateIntervalMs, clock),
    pods: monitoredPods(desired, {
      status,
      onlyActive: gateEnabled(config.kubelet.featureGates, "KubeletPodResourcesListUseActivePods"),
    }),
    cpus,
    claims,
    numaNodes: alignment?.numa.ids ?? [],
    memory,
    allSourcesReady: sourcesSynced.all,
    isAlive(uid) {
      const pod = podCache.get(uid);
      return pod !== undefined && isAlive(pod);
    },
    measures: metrics.measures,
  });
}

function createNodeDraManager({ config, target, client, metrics, partsOf }: NodeContext): DraManager {
  const { signals, desired, worker, sourcesSynced, ...parts } = partsOf("dra");
  const isOn = (gate: string) => gateEnabled(config.kubelet.featureGates, gate);
  return createDraManager({
    ...parts,
    host: target.host,
    client,
    nodeName: config.nodeName,
    rootDir: config.rootDir,
    sourcesSynced: sourcesSynced.all,
    isKnown: isKnownPod(desired, worker),
    health: isOn("ResourceHealthStatus")
      ? { withMessages: isOn("ResourceHealthStatusMessage"), onChange: (uid) => signals.wakeWorker.send(uid, "device") }
      : undefined,
    measures: metrics.measures.dra,
  });
}

/** @returns undefined if the policy is none. */
async function createNodeCpuManager(context: NodeContext): Promise<CpuManager | undefined> {
  const { config, target, metrics, log, partsOf, signal } = context;
  const opened = await openPolicy(cpuSettings(config), target.host, log, signal);
  if (!opened) {
    await writeCpuState(target.host.fs, config.rootDir, undefined, signal);
    return undefined;
  }
  const { desired, worker, sourcesSynced, ...parts } = partsOf("cpus");
  return createCpuManager({
    ...parts,
    ...opened,
    podLevel: managesPodLevel(config),
    fs: target.host.fs,
    rootDir: config.rootDir,
    runtime: target.runtime,
    measures: metrics.measures.cpus,
    reconcileMs: config.kubelet.cpuManagerReconcilePeriod,
    allSourcesReady: sourcesSynced.all,
    isKnown: isKnownPod(desired, worker),
  });
}

/** @returns undefined if the policy is None. */
async function createNodeMemoryManager(context: NodeContext): Promise<MemoryManager | undefined> {
  const { config, target, metrics, log, partsOf, signal } = context;
  const state = await openMemory(memorySettings(config), target.host, log, signal);
  if (!state) {
    await writeMemoryState(target.host.fs, config.rootDir, undefined, signal);
    return undefined;
  }
  const { desired, worker, sourcesSynced, ...parts } = partsOf("memoryManager");
  return createMemoryManager({
    ...parts,
    state,
    podLevel: managesPodLevel(config),
    fs: target.host.fs,
    rootDir: config.rootDir,
    measures: metrics.measures.memory,
    allSourcesReady: sourcesSynced.all,
    isKnown: isKnownPod(desired, worker),
  });
}

/** Returns whether a source wants a pod or a worker handles it. */
function isKnownPod(
  desired: { get(uid: string): unknown },
  worker: { get(uid: string): unknown },
): (uid: string) => boolean {
  return (uid) => desired.get(uid) !== undefined || worker.get(uid) !== undefined;
}

/** Returns whether a container has exclusive CPUs, so that its CPU time is not limited; undefined if CPU time limits apply to all. */
export function unlimitedCpus(
  { config: { kubelet } }: NodeContext,
  cpus: CpuManager | undefined,
): ResourceSettings["hasExclusiveCpus"] {
  return gateEnabled(kubelet.featureGates, "DisableCPUQuotaWithExclusiveCPUs") ? cpus?.hasExclusiveCpus : undefined;
}

/** Files of resource managers and the Pods API, relative to a node's root directory: `graftlet remove` removes them. */
export const managerFiles: readonly string[] = [
  `${pluginDirectory}/${pluginFiles.socket}`,
  `${pluginDirectory}/${pluginFiles.checkpoint}`,
  `${podResourcesDirectory}/${pluginFiles.socket}`,
  `${podsApiDirectory}/${podsApiSocket}`,
  claimCheckpoint,
  ...Object.values(managerCheckpoints),
];
