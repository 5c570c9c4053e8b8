import type { ContainerInspectInfo, HostConfig } from "dockerode";
import {
  type ContainerConfig,
  LinuxContainerResources,
  LinuxContainerSecurityContext,
  NamespaceMode,
  NamespaceOption,
} from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Host } from "../../../src/seams/host.ts";
import type { ContainerLogLimits } from "../../../src/seams/provider.ts";
import { containerMounts } from "./mounts.ts";
import { securityOptions } from "./security-options.ts";

/** The parts of a sandbox's inspection that its containers need. */
export type SandboxInspect = Pick<ContainerInspectInfo, "Id" | "HostConfig">;

export interface HostConfigInput {
  readonly config: ContainerConfig;
  readonly sandbox: SandboxInspect;
  readonly containerLogs: ContainerLogLimits;
  readonly fs: Pick<Host["fs"], "readFile">;
}

/** A container's HostConfig, as cri-dockerd sets it.
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

/** Empty for a PID namespace of its own. */
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
      throw new CodedError("invalid_argument", `PID namespace mode ${pid} is not known`);
  }
}

/** Settings that containers share with their sandbox, to be in its cgroup and to join its namespaces. */
function inheritedSettings({ HostConfig: { CgroupParent, Runtime, UsernsMode } }: SandboxInspect): HostConfig {
  return {
    ...(CgroupParent && { CgroupParent }),
    ...(Runtime && { Runtime }),
    ...(UsernsMode && { UsernsMode }),
  };
}

/** Bytes of swap on cgroup v2. */
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

/** A daemon that cannot set a negative score for sandboxes cannot for containers either: they get its minimum, which only affects the order
 *  of OOM kills. */
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

/** Docker refuses a size that is not positive: the log is then not rotated.
 *  @see https://docs.docker.com/engine/logging/drivers/json-file/ */
function logConfig({ maxSizeBytes, maxFiles }: ContainerLogLimits): HostConfig["LogConfig"] {
  const limits = { "max-size": String(maxSizeBytes), "max-file": String(Math.max(1, maxFiles)) };
  return { Type: "json-file", Config: maxSizeBytes > 0 ? limits : {} };
}
