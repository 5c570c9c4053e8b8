import type { ContainerInspectInfo, HostConfig, MountPropagation as DockerPropagation, MountSettings } from "dockerode";
import {
  type ContainerConfig,
  LinuxContainerResources,
  LinuxContainerSecurityContext,
  NamespaceMode,
  NamespaceOption,
  type Mount,
  MountPropagation,
} from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Host } from "../../../src/seams/host.ts";
import type { ContainerLogLimits } from "../../../src/seams/provider.ts";
import { securityOptions } from "./security-options.ts";

/** The parts of a sandbox's inspect output that its containers need. */
export type SandboxInspect = Pick<ContainerInspectInfo, "Id" | "HostConfig">;

export interface HostConfigInput {
  readonly config: ContainerConfig;
  readonly sandbox: SandboxInspect;
  readonly containerLogs: ContainerLogLimits;
  readonly fs: Pick<Host["fs"], "readFile">;
}

/** Returns a container's HostConfig, as cri-dockerd sets it.
 *  @throws CodedError unimplemented for features that the Engine API lacks, invalid_argument, failed_precondition. */
export async function containerHostConfig(
  { config, sandbox, containerLogs, fs }: HostConfigInput,
  signal: AbortSignal,
): Promise<HostConfig> {
  const security = config.linux?.securityContext;
  const namespaces = NamespaceOption.fromPartial(security?.namespaceOptions ?? {});
  return {
    ...namespaceModes(namespaces, sandbox.Id),
    ...inheritedSettings(sandbox),
    ...resourceSettings(config.linux?.resources),
    OomScoreAdj: oomScoreAdjust(config.linux?.resources, sandbox),
    ...containerMounts(config.mounts),
    Devices: config.devices.map(({ hostPath, containerPath, permissions }) => ({
      PathOnHost: hostPath,
      PathInContainer: containerPath,
      CgroupPermissions: permissions,
    })),
    ...(config.CDIDevices.length > 0 && {
      DeviceRequests: [{ Driver: "cdi", DeviceIDs: config.CDIDevices.map(({ name }) => name) }],
    }),
    ...(security && securitySettings(security)),
    SecurityOpt: await securityOptions(LinuxContainerSecurityContext.fromPartial(security ?? {}), fs, signal),
    LogConfig: logConfig(containerLogs),
    // Overrides a daemon configured to add its own init: PID 1 is the requested process.
    Init: false,
    RestartPolicy: { Name: "no" },
  };
}

function namespaceModes({ network, ipc, pid, targetId }: NamespaceOption, sandboxId: string): HostConfig {
  const sandbox = `container:${sandboxId}`;
  return {
    NetworkMode: sandbox,
    IpcMode: ipc === NamespaceMode.NODE ? "host" : sandbox,
    PidMode: pidMode(pid, sandbox, targetId),
    ...(network === NamespaceMode.NODE && { UTSMode: "host" }),
  };
}

/** HostConfig.PidMode; empty for a private PID namespace. */
function pidMode(pid: NamespaceMode, sandbox: string, targetId: string): string {
  switch (pid) {
    case NamespaceMode.POD:
      return sandbox;
    case NamespaceMode.CONTAINER:
      return "";
    case NamespaceMode.NODE:
      return "host";
    case NamespaceMode.TARGET:
      return `container:${targetId}`;
    default:
      throw new CodedError("invalid_argument", `unknown PID namespace mode ${pid}`);
  }
}

/** Settings that a container takes over from its sandbox, in order to be in its cgroup and to join its namespaces. */
function inheritedSettings({ HostConfig: { CgroupParent, Runtime, UsernsMode } }: SandboxInspect): HostConfig {
  return {
    ...(CgroupParent && { CgroupParent }),
    ...(Runtime && { Runtime }),
    ...(UsernsMode && { UsernsMode }),
  };
}

/** Swap limit as a cgroup v2 setting, bytes; 0 if there is none. */
function swapBytes({ unified }: LinuxContainerResources): number {
  return Number(unified["memory.swap.max"] ?? 0);
}

/** Limits in the Engine API's form; values that CRI leaves open (0, empty) are omitted. MemorySwap includes memory: without a swap limit
 *  the container gets no swap. */
export function resourceSettings(resources: Partial<LinuxContainerResources> | undefined): HostConfig {
  const given = LinuxContainerResources.fromPartial(resources ?? {});
  const memory = Number(given.memoryLimitInBytes);
  const settings = {
    CpuShares: Number(given.cpuShares),
    CpuPeriod: Number(given.cpuPeriod),
    CpuQuota: Number(given.cpuQuota),
    CpusetCpus: given.cpusetCpus,
    CpusetMems: given.cpusetMems,
    Memory: memory,
    MemorySwap: memory === 0 ? 0 : Number(given.memorySwapLimitInBytes) || memory + swapBytes(given),
  };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== 0 && value !== ""));
}

/** OOM score adjustment of a container. If the daemon cannot set negative values (the sandbox has none), it is at least 0, which
 *  only affects the order of OOM kills. */
function oomScoreAdjust(resources: LinuxContainerResources | undefined, { HostConfig }: SandboxInspect): number {
  const wanted = Number(resources?.oomScoreAdj ?? 0n);
  return (HostConfig.OomScoreAdj ?? 0) < 0 ? wanted : Math.max(0, wanted);
}

/** Masked and read-only paths as listed by CRI; none for a privileged container. */
function securitySettings(security: LinuxContainerSecurityContext): HostConfig {
  const { privileged, capabilities, readonlyRootfs, supplementalGroups, maskedPaths, readonlyPaths } = security;
  if (capabilities && capabilities.addAmbientCapabilities.length > 0)
    throw new CodedError("unimplemented", "ambient capabilities are not supported by Docker");
  return {
    Privileged: privileged,
    ReadonlyRootfs: readonlyRootfs,
    CapAdd: capabilities?.addCapabilities ?? [],
    CapDrop: capabilities?.dropCapabilities ?? [],
    GroupAdd: supplementalGroups.map(String),
    ...(!privileged && { MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths }),
  };
}

/** Log settings; without rotation if the size is not positive, which Docker refuses.
 *  @see https://docs.docker.com/engine/logging/drivers/json-file/ */
function logConfig({ maxSizeBytes, maxFiles }: ContainerLogLimits): HostConfig["LogConfig"] {
  const limits = { "max-size": String(maxSizeBytes), "max-file": String(Math.max(1, maxFiles)) };
  return { Type: "json-file", Config: maxSizeBytes > 0 ? limits : {} };
}

/** An entry of HostConfig.Mounts. Daemons that do not know an option (API 1.41) behave that way by default, or refuse a missing
 *  source. */
interface BindMount extends Omit<MountSettings, "BindOptions"> {
  readonly BindOptions: {
    /** If it is omitted, Docker uses private propagation, or slave if the source is in its data directory or contains it, where
     *  it refuses an explicit private. */
    readonly Propagation?: DockerPropagation;
    readonly CreateMountpoint: boolean;
    readonly ReadOnlyNonRecursive?: boolean;
  };
}

/** Converts CRI mounts to the Engine API's form, in order. A missing source becomes a directory, and read-only is not recursive,
 *  as with CRI runtimes.
 *  @throws CodedError unimplemented for features that the Engine API lacks, invalid_argument.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.44/#tag/Container/operation/ContainerCreate */
function containerMounts(mounts: readonly Mount[]) {
  for (const mount of mounts) rejectUnsupported(mount);
  return {
    // dockerode's types require a propagation; the API does not.
    Mounts: mounts.filter(({ selinuxRelabel }) => !selinuxRelabel).map(bindMount) as MountSettings[],
    /** The older form of mounts, the only one that supports SELinux relabelling. */
    Binds: mounts.filter(({ selinuxRelabel }) => selinuxRelabel).map(relabelledBind),
  };
}

function bindMount({ hostPath, containerPath, readonly, propagation }: Mount): BindMount {
  const name = propagationName(propagation);
  return {
    Type: "bind",
    Source: hostPath,
    Target: containerPath,
    ReadOnly: readonly,
    BindOptions: {
      ...(name !== undefined && { Propagation: name }),
      CreateMountpoint: true,
      ...(readonly && { ReadOnlyNonRecursive: true }),
    },
  };
}

/** `source:target:options`; `Z` relabels for the pod, whose containers share one label. */
function relabelledBind({ hostPath, containerPath, readonly, propagation }: Mount): string {
  if (`${hostPath}${containerPath}`.includes(":"))
    throw new CodedError(
      "invalid_argument",
      `Docker cannot relabel ${hostPath}, mounted at ${containerPath}, for SELinux: its path contains a colon`,
    );
  const name = propagationName(propagation);
  const options = [...(readonly ? ["ro"] : []), ...(name === undefined ? [] : [name]), "Z"];
  return `${hostPath}:${containerPath}:${options.join(",")}`;
}

/** Docker's name of a mount propagation; undefined to leave the choice to Docker. @see `BindMount` */
function propagationName(propagation: MountPropagation): DockerPropagation | undefined {
  switch (propagation) {
    case MountPropagation.PROPAGATION_PRIVATE:
      return undefined;
    case MountPropagation.PROPAGATION_HOST_TO_CONTAINER:
      return "rslave";
    case MountPropagation.PROPAGATION_BIDIRECTIONAL:
      return "rshared";
    default:
      throw new CodedError("invalid_argument", `unknown mount propagation ${propagation}`);
  }
}

function rejectUnsupported({ containerPath, image, recursiveReadOnly, uidMappings, gidMappings }: Mount): void {
  const refuse = (what: string) =>
    new CodedError("unimplemented", `mount ${containerPath}: Docker does not support ${what}`);
  if (image) throw refuse("image volumes");
  if (recursiveReadOnly) throw refuse("reliable recursive read-only mounts");
  if (uidMappings.length > 0 || gidMappings.length > 0) throw refuse("ID-mapped mounts");
}
