import { checkGracePeriods, checkMinimumReclaim, checkThresholds, overriddenThresholds } from "./eviction-checks.ts";
import {
  checkAbsolutePath,
  checkCpuSet,
  checkPort,
  checkRange,
  checkReserved,
  checkSamplingRate,
  checkSysctls,
  checkSize,
  checkTracingEndpoint,
} from "./field-checks.ts";
import { loggingFields, securityFields } from "./kubelet-groups.ts";
import { memoryReservations, priorityGraces, taints } from "./object-types.ts";
import { type Field, field, optional, pointer, type Shape, type ValueOf } from "./schema.ts";
import {
  bool,
  boolMap,
  decimal,
  duration,
  headers,
  int32,
  int64,
  ipAddress,
  oneOf,
  text,
  textMap,
  texts,
} from "./value-types.ts";

const ownCgroups = "graftlet stays in the cgroup it was started in";
const notNegative = checkRange(0, Number.MAX_SAFE_INTEGER);
const pairs = textMap({ sign: "=" });
const thresholds = textMap({ sign: "<" });

/** True checks kernel settings, false sets them. If unset, they are left alone, because they belong to the machine's owner. */
const protectKernelDefaults: Field<boolean | undefined> = {
  ...optional(bool, { flag: "protect-kernel-defaults", actsByDefault: true }),
  instead: (isSet) => (isSet === undefined ? "kernel settings are neither checked nor changed" : undefined),
};

/** Every field of KubeletConfiguration v1beta1 at 1.36: its type, default, flag, bounds and support in graftlet. Deviations: security is
 *  also on with flags alone, images are pulled in parallel, failCgroupV1 is off, the log is JSON.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ */
export const kubeletFields = {
  enableServer: pointer(bool, true, { flag: "enable-server" }),
  staticPodPath: field(text, "", { flag: "pod-manifest-path" }),
  podLogsDir: field(text, "/var/log/pods", { check: checkAbsolutePath }),
  syncFrequency: field(duration, 60_000, { flag: "sync-frequency" }),
  fileCheckFrequency: field(duration, 20_000, { flag: "file-check-frequency" }),
  httpCheckFrequency: field(duration, 20_000, { flag: "http-check-frequency" }),
  staticPodURL: field(text, "", { flag: "manifest-url", secret: true }),
  staticPodURLHeader: field(headers, {}, { flag: "manifest-url-header", secret: true }),
  address: field(ipAddress, "0.0.0.0", { flag: "address" }),
  port: field(int32, 10250, { flag: "port", check: checkPort(false) }),
  readOnlyPort: field(int32, 0, {
    flag: "read-only-port",
    check: checkPort(true),
    instead: "nothing is served without authentication",
  }),
  ...securityFields,
  registryPullQPS: pointer(int32, 5, { flag: "registry-qps", check: notNegative }),
  registryBurst: field(int32, 10, { flag: "registry-burst", check: notNegative }),
  imagePullCredentialsVerificationPolicy: field(
    oneOf("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"),
    "NeverVerifyPreloadedImages",
  ),
  preloadedImagesVerificationAllowlist: field(texts, []),
  eventRecordQPS: pointer(int32, 50, { flag: "event-qps", check: notNegative }),
  eventBurst: field(int32, 100, { flag: "event-burst", check: notNegative }),
  enableDebuggingHandlers: pointer(bool, true, { flag: "enable-debugging-handlers" }),
  enableContentionProfiling: field(bool, false, { flag: "contention-profiling", instead: "nothing is profiled" }),
  healthzPort: pointer(int32, 10248, { flag: "healthz-port", check: checkPort(true) }),
  healthzBindAddress: field(ipAddress, "127.0.0.1", { flag: "healthz-bind-address" }),
  oomScoreAdj: pointer(int32, -999, {
    flag: "oom-score-adj",
    check: checkRange(-1000, 1000),
  }),
  clusterDomain: field(text, "", { flag: "cluster-domain" }),
  clusterDNS: field(texts, [], { flag: "cluster-dns" }),
  streamingConnectionIdleTimeout: field(duration, 4 * 3_600_000, { flag: "streaming-connection-idle-timeout" }),
  nodeStatusUpdateFrequency: field(duration, 10_000, { flag: "node-status-update-frequency" }),
  nodeStatusReportFrequency: field(duration, 5 * 60_000),
  nodeLeaseDurationSeconds: field(int32, 40, { check: checkRange(1, 2 ** 31 - 1) }),
  imageMinimumGCAge: field(duration, 120_000, { flag: "minimum-image-ttl-duration", check: notNegative }),
  imageMaximumGCAge: field(duration, 0, { check: notNegative }),
  imageGCHighThresholdPercent: pointer(int32, 85, {
    flag: "image-gc-high-threshold",
    check: checkRange(0, 100),
  }),
  imageGCLowThresholdPercent: pointer(int32, 80, {
    flag: "image-gc-low-threshold",
    check: checkRange(0, 100),
  }),
  volumeStatsAggPeriod: field(duration, 60_000, { flag: "volume-stats-agg-period" }),
  kubeletCgroups: field(text, "", { flag: "kubelet-cgroups", instead: ownCgroups }),
  systemCgroups: field(text, "", { flag: "system-cgroups", instead: "system processes stay in their cgroups" }),
  cgroupRoot: field(text, "", { flag: "cgroup-root" }),
  cgroupsPerQOS: pointer(bool, true, { flag: "cgroups-per-qos" }),
  cgroupDriver: field(oneOf("cgroupfs", "systemd"), "cgroupfs", { flag: "cgroup-driver" }),
  cpuManagerPolicy: field(oneOf("none", "static"), "none", { flag: "cpu-manager-policy" }),
  singleProcessOOMKill: optional(bool),
  cpuManagerPolicyOptions: field(textMap({ sign: "=", split: false }), {}, { flag: "cpu-manager-policy-options" }),
  cpuManagerReconcilePeriod: field(duration, 10_000, { flag: "cpu-manager-reconcile-period" }),
  memoryManagerPolicy: field(oneOf("None", "Static"), "None", { flag: "memory-manager-policy" }),
  topologyManagerPolicy: field(oneOf("none", "best-effort", "restricted", "single-numa-node"), "none", {
    flag: "topology-manager-policy",
  }),
  topologyManagerScope: field(oneOf("container", "pod"), "container", { flag: "topology-manager-scope" }),
  topologyManagerPolicyOptions: field(pairs, {}, { flag: "topology-manager-policy-options" }),
  qosReserved: field(pairs, {}, { flag: "qos-reserved", instead: "requests are not reserved by QoS class" }),
  runtimeRequestTimeout: field(duration, 120_000, { flag: "runtime-request-timeout" }),
  hairpinMode: field(oneOf("promiscuous-bridge", "hairpin-veth", "none"), "promiscuous-bridge", {
    flag: "hairpin-mode",
  }),
  maxPods: field(int32, 110, { flag: "max-pods", check: notNegative }),
  podCIDR: field(text, "", { flag: "pod-cidr", instead: "pods get their addresses from the runtime's network" }),
  podPidsLimit: pointer(int64, -1, { flag: "pod-max-pids" }),
  resolvConf: pointer(text, "/etc/resolv.conf", { flag: "resolv-conf" }),
  runOnce: field(bool, false, {
    flag: "runonce",
    check: (value) => (value ? "run-once mode was removed from the kubelet; leave it out" : undefined),
  }),
  cpuCFSQuota: pointer(bool, true, { flag: "cpu-cfs-quota" }),
  cpuCFSQuotaPeriod: pointer(duration, 100, { flag: "cpu-cfs-quota-period", check: checkRange(1, 1000, "1ms to 1s") }),
  nodeStatusMaxImages: pointer(int32, 50, { flag: "node-status-max-images", check: checkRange(-1, 2 ** 31 - 1) }),
  maxOpenFiles: field(int64, 1_000_000, {
    flag: "max-open-files",
    check: notNegative,
    instead: "the hard limit of open files applies",
  }),
  contentType: field(text, "application/vnd.kubernetes.protobuf", {
    flag: "kube-api-content-type",
    instead: (value) => (value === "application/json" ? undefined : "graftlet uses JSON with the API server"),
  }),
  kubeAPIQPS: pointer(int32, 50, { flag: "kube-api-qps", check: notNegative }),
  kubeAPIBurst: field(int32, 100, { flag: "kube-api-burst", check: notNegative }),
  serializeImagePulls: pointer(bool, false, { flag: "serialize-image-pulls" }),
  maxParallelImagePulls: optional(int32, { check: checkRange(1, 2 ** 31 - 1) }),
  evictionHard: field(thresholds, {}, { flag: "eviction-hard", check: checkThresholds, instead: overriddenThresholds }),
  evictionSoft: field(thresholds, {}, { flag: "eviction-soft", check: checkThresholds, instead: overriddenThresholds }),
  evictionSoftGracePeriod: field(pairs, {}, { flag: "eviction-soft-grace-period", check: checkGracePeriods }),
  evictionPressureTransitionPeriod: field(duration, 5 * 60_000, { flag: "eviction-pressure-transition-period" }),
  evictionMaxPodGracePeriod: field(int32, 0, { flag: "eviction-max-pod-grace-period" }),
  evictionMinimumReclaim: field(pairs, {}, { flag: "eviction-minimum-reclaim", check: checkMinimumReclaim }),
  mergeDefaultEvictionSettings: pointer(bool, false),
  podsPerCore: field(int32, 0, { flag: "pods-per-core", check: notNegative }),
  enableControllerAttachDetach: pointer(bool, true, {
    flag: "enable-controller-attach-detach",
    instead: "the node leaves attaching volumes to the controller",
  }),
  protectKernelDefaults,
  // If unset, it is true only for graftlet's own machine.
  makeIPTablesUtilChains: optional(bool, { flag: "make-iptables-util-chains" }),
  iptablesMasqueradeBit: pointer(int32, 14, { check: checkRange(0, 31) }),
  iptablesDropBit: pointer(int32, 15, { check: checkRange(0, 31) }),
  featureGates: field(boolMap, {}, { flag: "feature-gates" }),
  // If unset, it is true only for graftlet's own machine.
  failSwapOn: optional(bool, { flag: "fail-swap-on" }),
  memorySwap: {
    swapBehavior: field(oneOf("", "NoSwap", "LimitedSwap"), ""),
  },
  containerLogMaxSize: field(text, "10Mi", {
    flag: "container-log-max-size",
    check: checkSize,
  }),
  containerLogMaxFiles: pointer(int32, 5, {
    flag: "container-log-max-files",
    check: checkRange(2, 2 ** 31 - 1),
  }),
  containerLogMaxWorkers: pointer(int32, 1, { check: checkRange(1, 2 ** 31 - 1) }),
  containerLogMonitorInterval: pointer(duration, 10_000, {
    check: checkRange(3000, Infinity, "3s or longer"),
  }),
  configMapAndSecretChangeDetectionStrategy: field(oneOf("Watch", "Cache", "Get"), "Watch", {
    instead: "graftlet always watches for changes",
  }),
  systemReserved: field(pairs, {}, { flag: "system-reserved", check: checkReserved }),
  kubeReserved: field(pairs, {}, { flag: "kube-reserved", check: checkReserved }),
  reservedSystemCPUs: field(text, "", { flag: "reserved-cpus", check: checkCpuSet }),
  showHiddenMetricsForVersion: field(text, "", { instead: "graftlet hides no metrics" }),
  systemReservedCgroup: field(text, "", { flag: "system-reserved-cgroup" }),
  kubeReservedCgroup: field(text, "", { flag: "kube-reserved-cgroup" }),
  enforceNodeAllocatable: pointer(texts, ["pods"], { flag: "enforce-node-allocatable" }),
  allowedUnsafeSysctls: field(texts, [], {
    flag: "allowed-unsafe-sysctls",
    check: checkSysctls,
  }),
  volumePluginDir: field(text, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", {
    flag: "volume-plugin-dir",
    instead: "no FlexVolume driver is called",
  }),
  providerID: field(text, "", { flag: "provider-id" }),
  kernelMemcgNotification: field(bool, false, { flag: "kernel-memcg-notification" }),
  logging: loggingFields,
  enableSystemLogHandler: pointer(bool, true),
  enableSystemLogQuery: pointer(bool, false),
  shutdownGracePeriod: field(duration, 0),
  shutdownGracePeriodCriticalPods: field(duration, 0),
  shutdownGracePeriodByPodPriority: field(priorityGraces, []),
  crashLoopBackOff: {
    maxContainerRestartPeriod: pointer(duration, 300_000, { check: checkRange(1000, 300_000, "1s to 5m") }),
  },
  reservedMemory: field(memoryReservations, [], { flag: "reserved-memory" }),
  enableProfilingHandler: pointer(bool, true),
  enableDebugFlagsHandler: pointer(bool, true),
  seccompDefault: pointer(bool, false, { flag: "seccomp-default" }),
  memoryThrottlingFactor: pointer(decimal, 0.9, {
    check: (value) => (value > 0 && value <= 1 ? undefined : "use a number above 0 and up to 1"),
  }),
  memoryReservationPolicy: field(oneOf("None", "TieredReservation"), "None"),
  registerWithTaints: field(taints, [], { flag: "register-with-taints" }),
  registerNode: pointer(bool, true, { flag: "register-node" }),
  tracing: {
    endpoint: optional(text, { check: checkTracingEndpoint }),
    samplingRatePerMillion: optional(int32, { check: checkSamplingRate }),
  },
  localStorageCapacityIsolation: pointer(bool, true, { flag: "local-storage-capacity-isolation" }),
  containerRuntimeEndpoint: field(text, "unix:///run/containerd/containerd.sock", {
    flag: "container-runtime-endpoint",
  }),
  imageServiceEndpoint: field(text, "", { flag: "image-service-endpoint" }),
  failCgroupV1: pointer(bool, false, { flag: "fail-cgroupv1" }),
  userNamespaces: {
    idsPerPod: optional(int64, {
      check: (value) =>
        value >= 65_536 && value % 65_536 === 0 && value < 2 ** 32
          ? undefined
          : "use a multiple of 65536 below 4294967296",
    }),
  },
} satisfies Shape;

/** A node's KubeletConfiguration with every field filled. Durations are in milliseconds; quantities are kept as written. */
export type KubeletConfiguration = ValueOf<typeof kubeletFields>;

/** Default thresholds for a configuration file without any. With flags alone, the kubelet has none.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#hard-eviction-thresholds */
export const hardEvictionDefaults: KubeletConfiguration["evictionHard"] = {
  "memory.available": "100Mi",
  "nodefs.available": "10%",
  "nodefs.inodesFree": "5%",
  "imagefs.available": "15%",
  "imagefs.inodesFree": "5%",
};
