import { isIPv4 } from "node:net";
import { posix } from "node:path";
import type { HostAddresses, ServiceLister, SubPathMounts } from "./ports.ts";
import {
  ImageSpec,
  LinuxContainerConfig,
  type LinuxContainerResources,
  type Mount,
  type PodSandboxConfig,
  type RuntimeHandlerFeatures,
  type UserNamespace,
} from "../gen/cri.ts";
import { readWithin } from "../host/read-within.ts";
import { hasCode, throwIfAborted } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { ConfigMap, Container, Pod, Secret, Service } from "../objects.ts";
import type { EventSink, ObjectCache, MountedVolumes } from "../pipeline.ts";
import { type CgroupLayout, podCgroup } from "../pod/cgroup-path.ts";
import { isStaticPod } from "../pod/containers.ts";
import { parseResolvConf, podDns, clusterDnsService } from "../pod/dns.ts";
import {
  type EnvironmentReference,
  buildEnvironment,
  environmentFiles,
  environmentReferences,
  fileKey,
  readsPodAddresses,
} from "../pod/env.ts";
import { type EnvFile, parseEnvFile } from "../pod/env-file.ts";
import { kernelHostname, podHostname } from "../pod/hostname.ts";
import { podLogDirectory } from "../pod/log-paths.ts";
import { qosClass } from "../pod/qos.ts";
import { nodeReference, podReference } from "../pod/reference.ts";
import { containerResources, type ContainerResourcesInput } from "../pod/resources.ts";
import { withKubernetesService } from "../pod/service-env.ts";
import { type ImageUser, containerSecurity, verifyRunAsNonRoot } from "../pod/security.ts";
import { type ResourceManager, prepareContainer } from "../resource-manager.ts";
import type { Host } from "../seams/host.ts";
import type { TargetNetwork } from "../seams/provider.ts";
import type { Images } from "../seams/runtime.ts";
import { buildContainerConfig } from "./container-config.ts";
import { completeContainerFiles, createContainerFiles } from "./container-files.ts";
import { type HostsFiles, createHostsFiles } from "./hosts-file.ts";
import { volumeDevices, volumeMounts, volumeSubPaths } from "./mounts.ts";
import { buildSandboxConfig, overheadOf } from "./sandbox-config.ts";
import type { EnsuredImage } from "./images/puller.ts";
import { createLogDirectory, linkLog, loggedContainers, removeLog, restartCountFromLogs } from "./log-files.ts";
import {
  type ConfiguredContainer,
  type ContainerStart,
  type EnsuredImages,
  type StartDeps,
  targetContainerId,
} from "./start-container.ts";
import type { PrefetchDeps } from "./prefetch.ts";
import type { TargetFacts } from "./target-facts.ts";

/** Settings of the node that shape its pods, from KubeletConfiguration. Paths are the target's. */
export interface PodSettings extends Omit<ContainerResourcesInput, "pod" | "container" | "target"> {
  readonly nodeName: string;
  /** `/var/lib/kubelet` by default. */
  readonly rootDirectory: string;
  readonly podLogsDirectory: string;
  /** Directory of log collectors: `/var/log/containers`. */
  readonly logLinksDirectory: string;
  /** resolvConf; empty for no resolver. */
  readonly resolvConf: string;
  readonly clusterDNS: readonly string[];
  readonly clusterDomain: string;
  readonly seccompDefault: boolean;
  /** Feature gate ContainerStopSignals. */
  readonly stopSignals: boolean;
  /** Labels that identify this node's pods on a shared runtime; otherwise empty. */
  readonly ownerLabels: Readonly<Record<string, string>>;
  /** The network of the target's pods, if it may differ from the cluster's. */
  readonly network?: TargetNetwork;
}

export interface PrepareDeps extends ClockAndLog {
  readonly settings: PodSettings;
  readonly fs: Host["fs"];
  readonly images: Pick<Images, "imageStatus">;
  readonly objects: ObjectCache;
  readonly services: ServiceLister;
  readonly addresses: HostAddresses;
  readonly volumes: SubPathMounts;
  readonly managers: readonly Pick<ResourceManager, "prepareContainer">[];
  /** Features of the pod's runtime handler; undefined if the runtime does not report them. */
  readonly handlerFeatures: (pod: Pod, signal: AbortSignal) => Promise<RuntimeHandlerFeatures | undefined>;
  /** The pod's user namespace. @throws Error with the kubelet's text if it cannot have one. */
  readonly userNamespace: (pod: Pod, signal: AbortSignal) => Promise<UserNamespace>;
  readonly facts: (signal: AbortSignal) => Promise<TargetFacts>;
  /** The cgroup layout, whose driver the runtime reports. */
  readonly cgroups: (signal: AbortSignal) => Promise<CgroupLayout>;
  /** The node's allocatable, as quantities by resource name. */
  readonly allocatable: () => Readonly<Record<string, string>>;
  readonly events: EventSink;
}

const defaultClusterDomain = "cluster.local";

/** Builds the configurations of sandboxes and containers. */
export type Preparer = Pick<StartDeps, "configure" | "restartCountFromLogs" | "linkLog" | "removeLog"> &
  Pick<PrefetchDeps, "loggedContainers" | "createContainerFiles" | "createLogDirectory"> & {
    /** @throws Error if the target's resolv.conf cannot be read or the hostname is too long. */
    configureSandbox(pod: Pod, attempt: number, signal: AbortSignal): Promise<PodSandboxConfig>;
    configureResources(pod: Pod, container: Container, signal: AbortSignal): Promise<LinuxContainerResources>;
    sandboxOverhead(pod: Pod): Partial<LinuxContainerResources>;
  };

/** Resolves a pod's references (objects, services, addresses, the target's own files) into runtime configurations, and writes the
 *  files that containers need on the target. */
export function createPreparer(deps: PrepareDeps): Preparer {
  const hostsFiles = createHostsFiles({ fs: deps.fs, clusterDomain: () => clusterDnsOf(deps).clusterDomain });
  return {
    configureSandbox: (pod, attempt, signal) => configureSandbox(deps, pod, attempt, signal),
    configureResources: async (pod, container, signal) =>
      containerResources({ ...deps.settings, pod, container, target: await deps.facts(signal) }),
    sandboxOverhead: (pod) => overheadOf(pod, deps.settings),
    configure: (start, image, restartCount, signal) =>
      configureContainer(deps, hostsFiles, { ...start, image, restartCount }, signal),
    restartCountFromLogs: (pod, container, signal) => restartCountFromLogs(deps, pod, container, signal),
    createLogDirectory: (pod, signal) => createLogDirectory(deps, pod, signal),
    loggedContainers: (pod, signal) => loggedContainers(deps, pod, signal),
    createContainerFiles: (pod, container, attempt, signal) =>
      createContainerFiles(deps, { pod, container, attempt, hostsFile: hostsFiles.expected(pod) }, signal),
    linkLog: (start, config, containerId) => linkLog(deps, start, config, containerId),
    removeLog: (pod, status, signal) => removeLog(deps, pod, status, signal),
  };
}

/** Event text for hostNetwork pods: their traffic cannot be told apart from the host's, so the service tunnel's rules do not apply. */
const hostNetworkMessage =
  "The pod uses the host network, which has no route to the cluster's Services and DNS: remove hostNetwork, or use network: routed.";

async function configureSandbox(
  deps: PrepareDeps,
  pod: Pod,
  attempt: number,
  signal: AbortSignal,
): Promise<PodSandboxConfig> {
  const { settings, events } = deps;
  const { network } = settings;
  const { clusterDNS, clusterDomain } = clusterDnsOf(deps);
  // Facts are read once and cached; the pod's containers will need them.
  const [resolver, layout, userNamespace] = await Promise.all([
    resolverOf(deps, signal),
    deps.cgroups(signal),
    deps.userNamespace(pod, signal),
    deps.facts(signal),
  ]);
  // The service tunnel serves pod networks only, not the host's.
  const outsideTunnel = network?.tunneled === true && pod.spec.hostNetwork === true;
  const isolated = network?.isolated === true || outsideTunnel;
  if (outsideTunnel) events.event(podReference(pod), "Warning", "PodNetworkIsolated", hostNetworkMessage);
  const hostIPs = deps.addresses.hostIPs();
  const dns = podDns({ pod, host: resolver, isolated, clusterDNS, clusterDomain, hostIPs });
  for (const { reason, message, nodeMessage } of dns.warnings) {
    if (nodeMessage !== undefined) events.event(nodeReference(settings.nodeName), "Warning", reason, nodeMessage);
    events.event(podReference(pod), "Warning", reason, message);
  }
  return buildSandboxConfig({
    pod,
    attempt,
    hostname: kernelHostname(pod, podHostname(pod, clusterDomain)),
    dns: dns.config,
    cgroupParent: podCgroup(pod.metadata.uid, qosClass(pod.spec), layout),
    userNamespace,
    logDirectory: podLogDirectory(settings.podLogsDirectory, pod),
    resources: settings,
    ownerLabels: settings.ownerLabels,
  });
}

/** The configured cluster DNS. With a service tunnel and no configuration, the addresses of the cluster's DNS Service. */
function clusterDnsOf({ settings: { clusterDNS, clusterDomain, network }, services }: PrepareDeps) {
  if (network?.tunneled !== true || clusterDNS.length > 0) return { clusterDNS, clusterDomain };
  const dns = services
    .list()
    ?.find(({ metadata: { name, namespace } }) => `${namespace}/${name}` === clusterDnsService);
  const found = (dns?.spec?.clusterIPs ?? []).filter((address) => isIPv4(address));
  return { clusterDNS: found, clusterDomain: clusterDomain || defaultClusterDomain };
}

async function resolverOf({ fs, settings: { resolvConf } }: PrepareDeps, signal: AbortSignal) {
  return resolvConf === "" ? undefined : parseResolvConf((await fs.readFile(resolvConf, { signal })).toString());
}

interface ContainerRun extends ContainerStart {
  readonly image: EnsuredImages;
  readonly restartCount: number;
}

async function configureContainer(
  deps: PrepareDeps,
  hostsFiles: HostsFiles,
  run: ContainerRun,
  signal: AbortSignal,
): Promise<ConfiguredContainer> {
  const { settings } = deps;
  const { pod, container, image, restartCount } = run;
  const targetId = targetContainerId(run);
  const additions = await prepareContainer(deps.managers, pod, container, signal);
  const environment = new Map([...(additions?.environment ?? []), ...(await environmentOf(deps, run, signal))]);
  const target = await deps.facts(signal);
  const { selinux } = target;
  const mounted = await mountsOf(deps, run, { environment, selinux }, signal);
  const imageUser = await imageUserOf(deps.images, image, signal);
  verifyRunAsNonRoot(pod, container, imageUser);
  const seccompRoot = posix.join(settings.rootDirectory, "seccomp");
  const { seccompDefault, ownerLabels } = settings;
  const linux = LinuxContainerConfig.fromPartial({
    resources: {
      ...containerResources({ ...settings, pod, container, target }),
      ...(additions?.cpus !== undefined && { cpusetCpus: additions.cpus }),
      ...(additions?.mems !== undefined && { cpusetMems: additions.mems }),
    },
    securityContext: containerSecurity({
      pod,
      container,
      imageUser,
      seccompRoot,
      seccompDefault,
      moreMaskedPaths: target.thermalPaths,
      volumeGroups: volumeGroups(run.mounted),
      userNamespace: run.sandbox.config.linux?.securityContext?.namespaceOptions?.usernsOptions,
      ...(targetId !== undefined && { targetId }),
    }),
  });
  const { mounts: fileMounts, hostsWritten } = await completeContainerFiles(
    deps,
    { pod, container, hostsFile: hostsFiles.of(pod, run.sandbox, signal), created: run.created, selinux },
    signal,
  );
  const config = buildContainerConfig({
    pod,
    container,
    image: image.imageRef,
    restartCount,
    environment,
    mounts: [...mounted, ...fileMounts],
    additions,
    volumeDevices: volumeDevices(run.mounted, container),
    linux,
    stopSignals: settings.stopSignals,
    ownerLabels,
  });
  return { config, hostsWritten };
}

/** Groups that own the files of a pod's volumes. */
function volumeGroups(mounted: MountedVolumes): readonly bigint[] {
  return [...mounted.values()].flatMap(({ persistent }) => persistent?.group ?? []);
}

async function mountsOf(
  deps: PrepareDeps,
  { pod, container, mounted, image: { volumes: images } }: ContainerRun,
  { environment, selinux }: { readonly environment: ReadonlyMap<string, string>; readonly selinux: boolean },
  signal: AbortSignal,
): Promise<readonly Mount[]> {
  const requested = volumeSubPaths(container, environment);
  const ofVolumes = requested.filter(({ volume }) => !images.has(volume));
  const ofImages = requested.filter(({ volume }) => images.has(volume));
  const bound = await deps.volumes.bindSubPaths(pod, container.name, ofVolumes, signal);
  const subPaths = new Map([...bound, ...ofImages.map(({ index, subPath }) => [index, subPath] as const)]);
  const recursiveReadOnly = await supportsRecursiveReadOnly(deps, pod, container, signal);
  return volumeMounts({ pod, container, mounted, images, subPaths, recursiveReadOnly, selinux });
}

/** True if the pod's runtime handler supports recursive read-only mounts; checked only if a mount may need one. A deleted RuntimeClass
 *  counts as unsupported: the sandbox exists, and its containers may restart. */
async function supportsRecursiveReadOnly(
  { handlerFeatures, log }: PrepareDeps,
  pod: Pod,
  { name, volumeMounts = [] }: Container,
  signal: AbortSignal,
): Promise<boolean> {
  if (volumeMounts.every(({ recursiveReadOnly }) => recursiveReadOnly === undefined)) return false;
  try {
    return (await handlerFeatures(pod, signal))?.recursiveReadOnlyMounts === true;
  } catch (err) {
    throwIfAborted(signal);
    log.warn({ err, uid: pod.metadata.uid, container: name }, "cannot read the features of the pod's runtime handler");
    return false;
  }
}

async function environmentOf(deps: PrepareDeps, run: ContainerRun, signal: AbortSignal): Promise<Map<string, string>> {
  const { pod, container, sandbox } = run;
  const { kubernetesService } = deps.settings.network ?? {};
  const known = servicesFor(deps.services, pod);
  const services = kubernetesService ? withKubernetesService(known, kubernetesService) : known;
  const { configMaps, secrets } = await referencedObjects(deps.objects, pod, container, signal);
  const hostIPs = deps.addresses.hostIPs();
  const podIPs = readsPodAddresses(container) ? await sandbox.ips : [];
  const ownIPs = pod.spec.hostNetwork ? hostIPs : podIPs;
  return buildEnvironment({
    pod,
    container,
    configMaps,
    secrets,
    files: await environmentFilesOf(deps, run, signal),
    services,
    podIPs: ownIPs,
    hostIPs,
    allocatable: deps.allocatable(),
  });
}

/** Maximum total bytes of a container's environment files. */
const maxEnvFileBytes = 1024 * 1024;

/** Reads environment files; a container may have written them, or replaced them by links. */
async function environmentFilesOf(
  { fs, log }: PrepareDeps,
  { pod, container, mounted }: ContainerRun,
  signal: AbortSignal,
) {
  const files = new Map<string, EnvFile | Error>();
  let maxBytes = maxEnvFileBytes;
  const parse = (bytes: Buffer): EnvFile => {
    maxBytes -= bytes.length;
    return parseEnvFile(bytes);
  };
  for (const file of environmentFiles(container)) {
    const base = mounted.get(file.volumeName)?.hostPath;
    const key = fileKey(file);
    if (base === undefined) {
      files.set(key, new Error(`cannot find the volume ${JSON.stringify(file.volumeName)} referenced by FileKeyRef`));
      continue;
    }
    const read = readWithin(fs, { base, below: file.path, maxBytes }, signal);
    const content = await read.then(parse, (error: unknown) => {
      signal.throwIfAborted();
      log.info({ err: error, uid: pod.metadata.uid }, "cannot read environment file");
      return new Error("couldn't parse env file", { cause: error });
    });
    files.set(key, content);
  }
  return files;
}

/** A pod must not start without service variables before services have been listed. */
function servicesFor(lister: ServiceLister, pod: Pod): readonly Service[] {
  const services = lister.list();
  if (services) return services;
  if (isStaticPod(pod)) return [];
  throw new Error("services have not yet been read at least once, cannot construct envvars");
}

/** Reads the environment's ConfigMaps and Secrets concurrently; of several failures, the first in spec order is thrown. */
async function referencedObjects(objects: ObjectCache, { metadata }: Pod, container: Container, signal: AbortSignal) {
  const configMaps = new Map<string, ConfigMap>();
  const secrets = new Map<string, Secret>();
  const read = async ({ kind, name }: EnvironmentReference) => {
    if (kind === "secret") secrets.set(name, await objects.secret(metadata.namespace, name, signal));
    else configMaps.set(name, await objects.configMap(metadata.namespace, name, signal));
  };
  const references = environmentReferences(container);
  for (const [index, outcome] of (await Promise.allSettled(references.map(read))).entries()) {
    if (outcome.status === "fulfilled") continue;
    if (!references[index]?.optional || !hasCode(outcome.reason, "not_found")) throw outcome.reason;
  }
  return { configMaps, secrets };
}

/** An image without a user runs as root. */
async function imageUserOf(
  images: PrepareDeps["images"],
  { imageRef, image }: EnsuredImage,
  signal: AbortSignal,
): Promise<ImageUser> {
  const status = image ?? (await images.imageStatus(ImageSpec.fromPartial({ image: imageRef }), signal));
  if (status?.uid) return { uid: status.uid.value };
  return status?.username ? { username: status.username } : { uid: 0n };
}
