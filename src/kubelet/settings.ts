import { gateEnabled } from "../config/feature-gates.ts";
import { parseBool } from "../config/go-values.ts";
import type { CpuManagerSettings } from "../cpus/open.ts";
import type { MemoryManagerSettings } from "../memory-manager/open.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { NodePressureDeps } from "../eviction/node-pressure.ts";
import type { ImageLimits } from "../gc/image-collection.ts";
import type { RotationSettings } from "../logs/rotation.ts";
import type { NodeSettings } from "../node/node-agent.ts";
import { providedAddressesAnnotation, uninitializedTaint } from "../node/node-object.ts";
import type { VerificationSettings } from "../runtime/images/verification-policy.ts";
import type { PodSettings } from "../runtime/configure-container.ts";
import type { SourceName } from "../pipeline.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import type { ContainerMemoryQos } from "../pod/resources.ts";
import { daemonSetsAnnotation } from "../pod/daemon-sets.ts";
import { podNetworkAnnotation } from "../service-tunnel/network-mode.ts";
import { type ContainerLogLimits, type Target, type TargetNetwork, hasOwnNetwork } from "../seams/provider.ts";
import { type TopologySettings, defaultMaxNodes } from "../topology/open.ts";
import { parseDuration } from "../lib/go-duration.ts";
import { cpusOf } from "../lib/cpu-set.ts";
import type { Enforcement } from "../cgroups/reserved-cgroups.ts";
import type { ShutdownDeps } from "../shutdown/shutdown.ts";
import { gracePeriods } from "../shutdown/groups.ts";
import type { Reservations } from "../cgroups/allocatable-limits.ts";
import type { ServerConfig } from "../server/ports.ts";
import { kubeletVersion } from "../version.ts";

/** Directory of links to container logs on the target, for log collectors. */
export const logLinksDirectory = "/var/log/containers";

/** Settings of the Node object and its status. @param target undefined if it could not be opened. */
export function nodeSettings(config: NodeConfig, target: Pick<Target, "network" | "link"> | undefined): NodeSettings {
  const { kubelet } = config;
  const { kubeReserved, systemReserved } = reservations(kubelet);
  return {
    nodeName: config.nodeName,
    labels: config.nodeLabels,
    annotations: { ...registeredAnnotations(target), ...providedAddresses(config) },
    taints: [...kubelet.registerWithTaints, ...(config.cloudProvider ? [uninitializedTaint] : [])],
    cloudProvider: config.cloudProvider === true,
    configured: config.configured,
    providerID: kubelet.providerID,
    registerNode: kubelet.registerNode,
    nodeIPs: config.nodeIPs,
    rootDir: config.rootDir,
    port: config.advertisedPort ?? kubelet.port,
    kubeletVersion,
    maxPods: kubelet.maxPods,
    podsPerCore: kubelet.podsPerCore,
    localStorageCapacityIsolation: kubelet.localStorageCapacityIsolation,
    maxImages: kubelet.nodeStatusMaxImages,
    updateMs: kubelet.nodeStatusUpdateFrequency,
    reportMs: kubelet.nodeStatusReportFrequency,
    leaseSeconds: kubelet.nodeLeaseDurationSeconds,
    failSwapOn: refusesSwap(config, target ?? {}),
    failCgroupV1: kubelet.failCgroupV1,
    protectKernelDefaults: kubelet.protectKernelDefaults,
    kubeReserved,
    systemReserved,
    evictionHard: kubelet.evictionHard,
  };
}

/** Returns the annotation that suggests addresses to a cloud controller. */
function providedAddresses({ cloudProvider, nodeIPs }: NodeConfig): Readonly<Record<string, string>> {
  const isGiven = cloudProvider && nodeIPs[0] !== undefined && !/^[0:.]+$/.test(nodeIPs[0]);
  return isGiven ? { [providedAddressesAnnotation]: nodeIPs.join() } : {};
}

/** True if the node refuses a target that has swap on. By default a remote machine may have swap; pods use none of it unless
 *  configured. */
export function refusesSwap({ kubelet }: Pick<NodeConfig, "kubelet">, { link }: Pick<Target, "link">): boolean {
  return kubelet.failSwapOn ?? link === undefined;
}

/** True if the node creates the kubelet's iptables chains. On a remote machine it does so only if configured. */
export function makesIptablesChains({ kubelet }: NodeConfig, { link }: Pick<Target, "link">): boolean {
  return kubelet.makeIPTablesUtilChains ?? link === undefined;
}

/** Returns the annotations of a newly registered Node: they exclude DaemonSets if its pods are not, or may not be, on the cluster
 *  network, and contain the pod network mode if the pods are isolated. */
export function registeredAnnotations(target: Pick<Target, "network"> | undefined): Readonly<Record<string, string>> {
  return {
    ...((!target || hasOwnNetwork(target.network)) && { [daemonSetsAnnotation]: "none" }),
    ...(target?.network?.isolated && { [podNetworkAnnotation]: "isolated" }),
  };
}

/** Reservations, and the cgroups on which they are enforced. */
export function enforcement({ kubelet }: Pick<NodeConfig, "kubelet">): Enforcement {
  const { enforceNodeAllocatable, kubeReservedCgroup, systemReservedCgroup } = kubelet;
  const { kubeReserved, systemReserved } = reservations(kubelet);
  return { kubeReserved, systemReserved, enforceNodeAllocatable, kubeReservedCgroup, systemReservedCgroup };
}

/** Reserved resources. reservedSystemCPUs overrides other CPU reservations.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#explicitly-reserved-cpu-list */
function reservations({ kubeReserved, systemReserved, reservedSystemCPUs }: NodeConfig["kubelet"]): Reservations {
  if (reservedSystemCPUs === "") return { kubeReserved, systemReserved };
  const { cpu: _, ...rest } = kubeReserved;
  return { kubeReserved: rest, systemReserved: { ...systemReserved, cpu: String(cpusOf(reservedSystemCPUs).size) } };
}

/** Settings of the CPU manager. */
export function cpuSettings({ kubelet, rootDir }: Pick<NodeConfig, "kubelet" | "rootDir">): CpuManagerSettings {
  const { cpuManagerPolicy: policy, cpuManagerPolicyOptions, reservedSystemCPUs } = kubelet;
  const { kubeReserved, systemReserved } = reservations(kubelet);
  const isOn = (option: string) => parseBool(cpuManagerPolicyOptions[option] ?? "false") === true;
  return {
    rootDir,
    policy,
    options: {
      fullCores: isOn("full-pcpus-only"),
      distributeAcrossNuma: isOn("distribute-cpus-across-numa"),
      spreadAcrossCores: isOn("distribute-cpus-across-cores"),
      alignBySocket: isOn("align-by-socket"),
      strictReservation: isOn("strict-cpu-reservation"),
      alignCaches: isOn("prefer-align-cpus-by-uncorecache"),
    },
    reserved: cpusOf(reservedSystemCPUs),
    reservedMilli: quantityMilli(kubeReserved["cpu"] ?? "0") + quantityMilli(systemReserved["cpu"] ?? "0"),
  };
}

/** True if the CPU and memory managers allocate exclusive resources to pods with pod-level resources. */
export function managesPodLevel({ kubelet: { featureGates } }: Pick<NodeConfig, "kubelet">): boolean {
  return ["PodLevelResourceManagers", "PodLevelResources"].every((gate) => gateEnabled(featureGates, gate));
}

/** Settings of the topology manager; undefined with the policy none. */
export function topologySettings({ kubelet }: Pick<NodeConfig, "kubelet">): TopologySettings | undefined {
  const { topologyManagerPolicy: policy, topologyManagerScope: scope, topologyManagerPolicyOptions: options } = kubelet;
  if (policy === "none") return undefined;
  return {
    policy,
    scope,
    podLevel: managesPodLevel({ kubelet }),
    preferClosest: parseBool(options["prefer-closest-numa-nodes"] ?? "false") === true,
    maxNodes: Number(options["max-allowable-numa-nodes"] ?? defaultMaxNodes),
  };
}

/** Settings of the memory manager. */
export function memorySettings({ kubelet, rootDir }: Pick<NodeConfig, "kubelet" | "rootDir">): MemoryManagerSettings {
  const { memoryManagerPolicy: policy, reservedMemory, kubeReserved, systemReserved, evictionHard } = kubelet;
  return {
    rootDir,
    policy,
    reservedMemory,
    kubeReserved,
    systemReserved,
    evictionHard: evictionHard["memory.available"] ?? "0",
  };
}

/** Time for which the sync loop may be inactive before it counts as unhealthy, milliseconds, as in a kubelet. */
export function syncLoopTimeout({ kubelet: { syncFrequency } }: NodeConfig): number {
  return Math.max(2 * syncFrequency, 300_000);
}

/** Settings of pull credential verification; undefined if the feature gate is off. */
export function verificationSettings({ kubelet }: NodeConfig): VerificationSettings | undefined {
  const {
    featureGates,
    imagePullCredentialsVerificationPolicy: policy,
    preloadedImagesVerificationAllowlist,
  } = kubelet;
  if (!gateEnabled(featureGates, "KubeletEnsureSecretPulledImages")) return undefined;
  return { policy, allowlist: preloadedImagesVerificationAllowlist };
}

/** The node's settings of pods. */
export function podSettings(
  { kubelet, nodeName, rootDir }: NodeConfig,
  ownerLabels: Readonly<Record<string, string>>,
  network: TargetNetwork | undefined,
  hasExclusiveCpus: PodSettings["hasExclusiveCpus"],
): PodSettings {
  return {
    nodeName,
    rootDirectory: rootDir,
    podLogsDirectory: kubelet.podLogsDir,
    logLinksDirectory,
    resolvConf: kubelet.resolvConf,
    clusterDNS: kubelet.clusterDNS,
    clusterDomain: kubelet.clusterDomain,
    seccompDefault: kubelet.seccompDefault,
    singleProcessOomKill: kubelet.singleProcessOOMKill ?? false,
    limitedSwap: allowsSwap(kubelet),
    stopSignals: gateEnabled(kubelet.featureGates, "ContainerStopSignals"),
    memoryQos: memoryQos(kubelet),
    cpuCfsQuota: kubelet.cpuCFSQuota,
    cpuCfsPeriodUs: kubelet.cpuCFSQuotaPeriod * 1000,
    ownerLabels,
    network,
    hasExclusiveCpus,
  };
}

/** True if containers may use some of the target's swap. */
export function allowsSwap({ memorySwap, featureGates }: NodeConfig["kubelet"]): boolean {
  return memorySwap.swapBehavior === "LimitedSwap" && gateEnabled(featureGates, "NodeSwap");
}

/** Settings of feature gate MemoryQoS; undefined if it is off. */
export function memoryQos(kubelet: NodeConfig["kubelet"]): ContainerMemoryQos | undefined {
  const { featureGates, memoryThrottlingFactor, memoryReservationPolicy, kubeReserved, systemReserved } = kubelet;
  if (!gateEnabled(featureGates, "MemoryQoS") || memoryThrottlingFactor === undefined) return undefined;
  return {
    throttlingFactor: memoryThrottlingFactor,
    reserves: memoryReservationPolicy === "TieredReservation",
    reservedBytes: quantityValue(kubeReserved["memory"] ?? "0") + quantityValue(systemReserved["memory"] ?? "0"),
  };
}

/** Settings of the eviction manager. */
export function evictionSettings(kubelet: NodeConfig["kubelet"]): NodePressureDeps["settings"] {
  const grace = Object.entries(kubelet.evictionSoftGracePeriod);
  return {
    evictionHard: kubelet.evictionHard,
    evictionSoft: kubelet.evictionSoft,
    evictionSoftGracePeriod: Object.fromEntries(grace.map(([signal, text]) => [signal, parseDuration(text) ?? 0])),
    evictionMinimumReclaim: kubelet.evictionMinimumReclaim,
    enforceNodeAllocatable: kubelet.enforceNodeAllocatable,
    transitionMs: kubelet.evictionPressureTransitionPeriod,
    maxPodGraceSeconds: kubelet.evictionMaxPodGracePeriod,
  };
}

/** Settings of graceful node shutdown; disabled if there are no periods. */
export function shutdownSettings({
  kubelet,
  nodeName,
  rootDir,
}: Pick<NodeConfig, "kubelet" | "nodeName" | "rootDir">): Pick<
  ShutdownDeps,
  "periods" | "recordsShutdowns" | "nodeName" | "rootDir"
> {
  const { featureGates, shutdownGracePeriod: allMs, shutdownGracePeriodCriticalPods: criticalMs } = kubelet;
  const isByPriority = gateEnabled(featureGates, "GracefulNodeShutdownBasedOnPodPriority");
  const byPriority = kubelet.shutdownGracePeriodByPodPriority.map(({ priority, shutdownGracePeriodSeconds }) => ({
    priority,
    seconds: shutdownGracePeriodSeconds,
  }));
  const periods = gateEnabled(featureGates, "GracefulNodeShutdown")
    ? gracePeriods({ allMs, criticalMs, byPriority: isByPriority ? byPriority : [] })
    : [];
  return { periods, recordsShutdowns: isByPriority, nodeName, rootDir };
}

/** Size limits of container logs, for runtimes that rotate logs themselves. */
export function containerLogLimits({ kubelet }: Pick<NodeConfig, "kubelet">): ContainerLogLimits {
  return { maxSizeBytes: quantityValue(kubelet.containerLogMaxSize), maxFiles: kubelet.containerLogMaxFiles };
}

/** Limits of images on the target. */
export function imageLimits(kubelet: NodeConfig["kubelet"]): ImageLimits {
  return {
    highPercent: kubelet.imageGCHighThresholdPercent,
    lowPercent: kubelet.imageGCLowThresholdPercent,
    minAgeMs: kubelet.imageMinimumGCAge,
    maxAgeMs: kubelet.imageMaximumGCAge,
  };
}

/** Settings of container log rotation. */
export function rotationSettings({ kubelet }: Pick<NodeConfig, "kubelet">): RotationSettings {
  const { maxSizeBytes, maxFiles } = containerLogLimits({ kubelet });
  return {
    maxSizeBytes,
    maxFiles,
    workers: kubelet.containerLogMaxWorkers,
    intervalMs: kubelet.containerLogMonitorInterval,
    podLogsDir: kubelet.podLogsDir,
  };
}

/** Pod sources other than the API server. */
export function staticSources({ kubelet }: Pick<NodeConfig, "kubelet">): readonly SourceName[] {
  return [...(kubelet.staticPodPath ? ["file" as const] : []), ...(kubelet.staticPodURL ? ["http" as const] : [])];
}

/** Pod sources of a node. @param standalone there is no API server. */
export function sourceNames({
  config,
  standalone,
}: {
  readonly config: NodeConfig;
  readonly standalone: boolean;
}): readonly SourceName[] {
  return [...(standalone ? [] : ["api" as const]), ...staticSources(config)];
}

/** Settings of the kubelet API. */
export function serverConfig({ kubelet, nodeName, rootDir }: NodeConfig): ServerConfig {
  return {
    address: kubelet.address,
    port: kubelet.port,
    nodeName,
    anonymous: kubelet.authentication.anonymous.enabled,
    enableDebuggingHandlers: kubelet.enableDebuggingHandlers,
    tlsMinVersion: kubelet.tlsMinVersion,
    tlsCipherSuites: kubelet.tlsCipherSuites,
    enableSystemLogHandler: kubelet.enableSystemLogHandler,
    enableSystemLogQuery: kubelet.enableSystemLogQuery,
    enableDebugFlagsHandler: kubelet.enableDebugFlagsHandler,
    enableProfilingHandler: kubelet.enableProfilingHandler,
    rootDir,
    splitLogStreams: gateEnabled(kubelet.featureGates, "PodLogsQuerySplitStreams"),
    flagz: gateEnabled(kubelet.featureGates, "ComponentFlagz"),
    statusz: gateEnabled(kubelet.featureGates, "ComponentStatusz"),
  };
}
