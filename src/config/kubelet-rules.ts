import { cpuManager, reservedMemory, topologyManager } from "./resource-manager-rules.ts";
import { gateEnabled } from "./feature-gates.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { KubeletConfiguration } from "./kubelet-fields.ts";
import { refuse } from "./refusal.ts";

/** A rule across several settings: throws if they contradict each other. */
type Rule = (config: KubeletConfiguration) => void;

const imageGc: Rule = (config) => {
  const { imageGCLowThresholdPercent: low, imageGCHighThresholdPercent: high } = config;
  if (low >= high) {
    throw refuse(
      "imageGCLowThresholdPercent (--image-gc-low-threshold)",
      low,
      `set it below imageGCHighThresholdPercent, which is ${high}`,
    );
  }
  if (config.imageMaximumGCAge > 0 && config.imageMaximumGCAge <= config.imageMinimumGCAge) {
    const least = goDuration(config.imageMinimumGCAge);
    throw refuse(
      "imageMaximumGCAge",
      goDuration(config.imageMaximumGCAge),
      `set it above imageMinimumGCAge, which is ${least}`,
    );
  }
};

const imagePulls: Rule = (config) => {
  if (config.serializeImagePulls && (config.maxParallelImagePulls ?? 1) > 1) {
    throw refuse(
      "maxParallelImagePulls",
      config.maxParallelImagePulls,
      "set serializeImagePulls to false, or leave one of the two out",
    );
  }
};

const imageVerification: Rule = (config) => {
  const list = config.preloadedImagesVerificationAllowlist;
  if (list.length > 0 && config.imagePullCredentialsVerificationPolicy !== "NeverVerifyAllowlistedImages") {
    throw refuse(
      "preloadedImagesVerificationAllowlist",
      list,
      "set imagePullCredentialsVerificationPolicy to NeverVerifyAllowlistedImages, or leave it out",
    );
  }
  const unfit = list.find((pattern) => !isAllowedName(pattern));
  if (unfit !== undefined) {
    throw refuse(
      "preloadedImagesVerificationAllowlist",
      unfit,
      "name an image without tag or digest, or a prefix such as registry.example.com/team/*",
    );
  }
};

/** Checks a name as the kubelet does: no whitespace, no tag or digest, and a star only as the whole last part. */
function isAllowedName(pattern: string): boolean {
  return /^[^\s*]+\/\*$/.test(pattern) || (/^[^\s*@]+$/.test(pattern) && !/:[^/]*$/.test(pattern));
}

const serverCertificate: Rule = (config) => {
  if (config.serverTLSBootstrap && !gateEnabled(config.featureGates, "RotateKubeletServerCertificate")) {
    throw refuse(
      "serverTLSBootstrap (--rotate-server-certificates)",
      true,
      "do not turn feature gate RotateKubeletServerCertificate off",
    );
  }
  if ((config.tlsCertFile === "") !== (config.tlsPrivateKeyFile === "")) {
    const [given, missing] =
      config.tlsCertFile === ""
        ? (["tlsPrivateKeyFile", "tlsCertFile"] as const)
        : (["tlsCertFile", "tlsPrivateKeyFile"] as const);
    throw refuse(given, config.tlsCertFile || config.tlsPrivateKeyFile, `set ${missing} too; the two belong together`);
  }
};

const cgroups: Rule = (config) => {
  if (config.systemCgroups !== "" && config.cgroupRoot === "") {
    throw refuse("systemCgroups (--system-cgroups)", config.systemCgroups, "set cgroupRoot (--cgroup-root) too");
  }
  if (config.reservedSystemCPUs !== "" && (config.systemReservedCgroup !== "" || config.kubeReservedCgroup !== "")) {
    throw refuse(
      "reservedSystemCPUs (--reserved-cpus)",
      config.reservedSystemCPUs,
      "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)",
    );
  }
};

const systemReserved = {
  field: "systemReservedCgroup",
  flag: "--system-reserved-cgroup",
  of: "system-reserved",
} as const;
const kubeReserved = { field: "kubeReservedCgroup", flag: "--kube-reserved-cgroup", of: "kube-reserved" } as const;

/** Values of enforceNodeAllocatable, each with the cgroup that it requires. */
const enforcements: Readonly<Record<string, typeof systemReserved | typeof kubeReserved | undefined>> = {
  pods: undefined,
  "system-reserved": systemReserved,
  "system-reserved-compressible": systemReserved,
  "kube-reserved": kubeReserved,
  "kube-reserved-compressible": kubeReserved,
  none: undefined,
};
const validEnforcements = Object.keys(enforcements)
  .map((name) => `"${name}"`)
  .join(", ")
  .replace(/, (?="none")/, " or ");

/** Checks in the kubelet's order, with the kubelet's messages.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#enforcing-node-allocatable */
const nodeAllocatable: Rule = (config) => {
  const list = config.enforceNodeAllocatable;
  const setting = "enforceNodeAllocatable (--enforce-node-allocatable)";
  const wrong = (words: string): Error => refuse(setting, list, words);
  for (const prefix of ["system-reserved", "kube-reserved"]) {
    if (list.includes(prefix) && list.includes(`${prefix}-compressible`))
      throw wrong(`both "${prefix}" and "${prefix}-compressible" cannot be specified together in ${setting}`);
  }
  for (const [at, part] of list.entries()) {
    if (list.indexOf(part) < at) throw wrong(`duplicated enforcements "${part}" in ${setting}`);
    if (!Object.hasOwn(enforcements, part))
      throw wrong(`option "${part}" specified for ${setting}. Valid options are ${validEnforcements}`);
    const cgroup = enforcements[part];
    if (cgroup && config[cgroup.field] === "")
      throw wrong(
        `${cgroup.field} (${cgroup.flag}) must be specified when "${cgroup.of}" or "${cgroup.of}-compressible" included in ${setting}`,
      );
    if (part === "none") {
      if (list.length > 1) throw wrong(`${setting} may not contain additional enforcements when "none" is specified`);
    } else if (!config.cgroupsPerQOS)
      throw wrong(`cgroupsPerQOS (--cgroups-per-qos) must be set to true when "${part}" contained in ${setting}`);
  }
};

const shutdown: Rule = (config) => {
  const { shutdownGracePeriod: all, shutdownGracePeriodCriticalPods: critical } = config;
  for (const [name, value] of [
    ["shutdownGracePeriod", all],
    ["shutdownGracePeriodCriticalPods", critical],
  ] as const) {
    if (value !== 0 && value < 1000) throw refuse(name, goDuration(value), "use 0s, or at least 1s");
  }
  if (critical > all) {
    throw refuse(
      "shutdownGracePeriodCriticalPods",
      goDuration(critical),
      `set it to at most shutdownGracePeriod, which is ${goDuration(all)}`,
    );
  }
  if (config.shutdownGracePeriodByPodPriority.length > 0 && all + critical > 0) {
    throw refuse(
      "shutdownGracePeriodByPodPriority",
      config.shutdownGracePeriodByPodPriority,
      "leave out shutdownGracePeriod; only one of the two can be set",
    );
  }
  if (all > 0 && !gateEnabled(config.featureGates, "GracefulNodeShutdown")) {
    throw refuse("shutdownGracePeriod", goDuration(all), "do not turn feature gate GracefulNodeShutdown off");
  }
  const byPriority = "GracefulNodeShutdownBasedOnPodPriority";
  if (config.shutdownGracePeriodByPodPriority.length > 0 && !gateEnabled(config.featureGates, byPriority)) {
    throw refuse(
      "shutdownGracePeriodByPodPriority",
      config.shutdownGracePeriodByPodPriority,
      `do not turn feature gate ${byPriority} off`,
    );
  }
};

const gated: Rule = (config) => {
  if (config.cpuCFSQuotaPeriod !== 100 && !gateEnabled(config.featureGates, "CustomCPUCFSQuotaPeriod")) {
    throw refuse(
      "cpuCFSQuotaPeriod (--cpu-cfs-quota-period)",
      goDuration(config.cpuCFSQuotaPeriod),
      "do not turn feature gate CustomCPUCFSQuotaPeriod off",
    );
  }
  if (
    config.crashLoopBackOff.maxContainerRestartPeriod !== 300_000 &&
    !gateEnabled(config.featureGates, "KubeletCrashLoopBackOffMax")
  ) {
    throw refuse(
      "crashLoopBackOff.maxContainerRestartPeriod",
      goDuration(config.crashLoopBackOff.maxContainerRestartPeriod),
      "do not turn feature gate KubeletCrashLoopBackOffMax off",
    );
  }
  if (config.memoryReservationPolicy === "TieredReservation" && !gateEnabled(config.featureGates, "MemoryQoS")) {
    throw refuse(
      "memoryReservationPolicy",
      config.memoryReservationPolicy,
      "turn feature gate MemoryQoS on, or use None",
    );
  }
};

const nodeLogs: Rule = (config) => {
  if (config.enableSystemLogQuery && !config.enableSystemLogHandler) {
    throw refuse("enableSystemLogQuery", true, "set enableSystemLogHandler to true too");
  }
};

const logFormat: Rule = ({ logging }) => {
  if (logging.vmodule.length > 0 && logging.format !== "text") {
    throw refuse(
      "logging.vmodule (--vmodule)",
      logging.vmodule,
      "only supported for text log format; set logging.format (--logging-format) to text",
    );
  }
};

const softEviction: Rule = (config) => {
  const missing = Object.keys(config.evictionSoft).find(
    (signal) => !Object.hasOwn(config.evictionSoftGracePeriod, signal),
  );
  if (missing !== undefined) {
    throw refuse(
      "evictionSoft (--eviction-soft)",
      config.evictionSoft,
      `grace period must be specified for the soft eviction threshold ${missing}: set one in evictionSoftGracePeriod`,
    );
  }
};

/** The kubelet's rules across settings of a KubeletConfiguration. */
const rules: readonly Rule[] = [
  imageGc,
  imagePulls,
  imageVerification,
  serverCertificate,
  cgroups,
  nodeAllocatable,
  shutdown,
  gated,
  nodeLogs,
  logFormat,
  softEviction,
  cpuManager,
  topologyManager,
  reservedMemory,
];

/** @throws CodedError invalid_argument for the first settings that contradict each other. */
export function checkRules(config: KubeletConfiguration): void {
  for (const rule of rules) rule(config);
}
