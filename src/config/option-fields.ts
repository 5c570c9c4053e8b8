import { daemonSetChoices } from "./node-config.ts";
import { field, optional, type Shape, type ValueOf } from "./schema.ts";
import { bool, duration, int32, ipAddress, oneOf, text, textMap, texts } from "./value-types.ts";

const cadvisor = "graftlet has no cAdvisor";
const noMounter = "volumes are mounted with the target's own tools";
const locked = "graftlet locks its root directory instead";

/** A flag without effect in graftlet, except for a warning. */
const ignored = (flag: string, instead: string) => optional(text, { flag, instead, secret: true });
const ignoredSwitch = (flag: string, instead: string) => field(bool, false, { flag, instead });

/** Flags outside KubeletConfiguration: graftlet's own, then the kubelet's.
 *  @see https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/ */
export const optionFields = {
  provider: field(text, "cri", { flag: "provider" }),
  providerConfig: optional(text, { flag: "provider-config" }),
  nodes: optional(text, { flag: "nodes" }),
  fleet: optional(text, { flag: "fleet" }),
  config: optional(text, { flag: "config" }),
  configDir: optional(text, { flag: "config-dir" }),
  kubeconfig: optional(text, { flag: "kubeconfig" }),
  hostnameOverride: field(text, "", { flag: "hostname-override" }),
  nodeIP: field(text, "", { flag: "node-ip" }),
  nodeLabels: field(textMap({ sign: "=", bareKeys: true }), {}, { flag: "node-labels" }),
  daemonSets: optional(oneOf(...daemonSetChoices), { flag: "daemon-sets" }),
  driverTopologyKeys: field(texts, [], { flag: "driver-topology-keys" }),
  rootDir: field(text, "/var/lib/kubelet", { flag: "root-dir" }),
  pagePort: optional(int32, { flag: "page-port" }),
  pageAddress: optional(ipAddress, { flag: "page-address" }),
  certDir: field(text, "/var/lib/kubelet/pki", { flag: "cert-dir" }),
  statusSocket: optional(text, { flag: "status-socket" }),
  bootstrapKubeconfig: optional(text, { flag: "bootstrap-kubeconfig" }),
  cloudProvider: field(oneOf("", "external"), "", { flag: "cloud-provider" }),
  runtimeCgroups: field(text, "", {
    flag: "runtime-cgroups",
    instead: "the runtime stays in the cgroup it was started in",
  }),
  imageCredentialProviderConfig: field(text, "", { flag: "image-credential-provider-config" }),
  imageCredentialProviderBinDir: field(text, "", { flag: "image-credential-provider-bin-dir" }),
  lockFile: field(text, "", { flag: "lock-file", instead: locked }),
  exitOnLockContention: ignoredSwitch("exit-on-lock-contention", locked),
  minimumContainerTTL: field(duration, 0, { flag: "minimum-container-ttl-duration" }),
  maximumDeadContainersPerContainer: field(int32, 1, { flag: "maximum-dead-containers-per-container" }),
  maximumDeadContainers: field(int32, -1, { flag: "maximum-dead-containers" }),
  mounterPath: field(text, "", { flag: "experimental-mounter-path", instead: noMounter }),
  allocatableIgnoresEviction: ignoredSwitch(
    "experimental-allocatable-ignore-eviction",
    "evictionHard is subtracted from the allocatable resources",
  ),
  housekeepingInterval: ignored("housekeeping-interval", cadvisor),
  globalHousekeepingInterval: ignored("global-housekeeping-interval", cadvisor),
  applicationMetricsCountLimit: ignored("application-metrics-count-limit", cadvisor),
  bootIdFile: ignored("boot-id-file", cadvisor),
  machineIdFile: ignored("machine-id-file", cadvisor),
  containerHints: ignored("container-hints", cadvisor),
  containerd: ignored("containerd", cadvisor),
  containerdNamespace: ignored("containerd-namespace", cadvisor),
  enableLoadReader: ignoredSwitch("enable-load-reader", cadvisor),
  eventStorageAgeLimit: ignored("event-storage-age-limit", cadvisor),
  eventStorageEventLimit: ignored("event-storage-event-limit", cadvisor),
  logCadvisorUsage: ignoredSwitch("log-cadvisor-usage", cadvisor),
  storageDriverUser: ignored("storage-driver-user", cadvisor),
  storageDriverPassword: ignored("storage-driver-password", cadvisor),
  storageDriverHost: ignored("storage-driver-host", cadvisor),
  storageDriverDb: ignored("storage-driver-db", cadvisor),
  storageDriverTable: ignored("storage-driver-table", cadvisor),
  storageDriverSecure: ignoredSwitch("storage-driver-secure", cadvisor),
  storageDriverBufferDuration: ignored("storage-driver-buffer-duration", cadvisor),
} satisfies Shape;

/** Flags of `graftlet remove` only. */
export const removeFields = {
  node: optional(text, { flag: "node" }),
  yes: field(bool, false, { flag: "yes" }),
} satisfies Shape;

/** Flags of `graftlet leave` only. */
export const leaveFields = {
  ...removeFields,
  deployment: optional(text, { flag: "deployment" }),
  timeout: field(duration, 5 * 60_000, { flag: "timeout" }),
} satisfies Shape;

/** Flags of `graftlet enrol` only. */
export const enrolFields = {
  address: optional(text, { flag: "address" }),
  validFor: field(duration, 60 * 60_000, { flag: "valid-for" }),
  approved: field(bool, false, { flag: "approved" }),
} satisfies Shape;

export type EnrolOptions = ValueOf<typeof enrolFields>;

/** Flags of `graftlet doctor` only. */
export const doctorFields = {
  node: removeFields.node,
  output: field(oneOf("text", "json"), "text", { flag: "output" }),
} satisfies Shape;

/** Flags of `graftlet status` only. */
export const statusFields = doctorFields;

/** Settings of the command line outside KubeletConfiguration. */
export type Options = ValueOf<typeof optionFields>;
