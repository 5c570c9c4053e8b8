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

/** A sandbox as its inspection shows it. */
export type SandboxInspect = Pick<ContainerInspectInfo, "Id" | "HostConfig">;

export interface HostConfigInput {
  readonly config: ContainerConfig;
  readonly sandbox: SandboxInspect;
  readonly containerLogs: ContainerLogLimits;
  readonly fs: Pick<Host["fs"], "readFile">;
}

/** How a container lies in its machine and its sandbox, as cri-dockerd sets it.
 *  @throws CodedError unimplemented for what the Engine API has not, invalid_argument, failed_precondition. */
export async function containerHostConfig(
  { config, sandbox, containerLogs, fs }: HostConfigInput,
  signal: AbortSignal,
): Promise<HostConfig> {
  const security = config.linux?.securityContext;
  const namespaces = NamespaceOption.fromPartial(security?.namespaceOptions ?? {});
  return {
    ...namespaceModes(namespaces, sandbox.Id),
    ...likeSandbox(sandbox),
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
    // A daemon told to put an init of its own before every container leaves these alone: PID 1 is the process asked for.
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

/** Empty for a namespace of the container's own. */
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

/** What a pod's containers have to have as their sandbox has it, to lie in its cgroup and to join its namespaces. */
function likeSandbox({ HostConfig: { CgroupParent, Runtime, UsernsMode } }: SandboxInspect): HostConfig {
  return {
    ...(CgroupParent && { CgroupParent }),
    ...(Runtime && { Runtime }),
    ...(UsernsMode && { UsernsMode }),
  };
}

/** Limits in the Engine API's terms; what CRI leaves open (0, empty) is left out. Without a limit of its own for swap a
 *  container has none: swap counts into MemorySwap. */
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
    MemorySwap: memory === 0 ? 0 : Number(given.memorySwapLimitInBytes) || memory,
  };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== 0 && value !== ""));
}

/** A daemon that may not give its sandboxes a negative score may give none to containers either: they get the lowest that it
 *  can, which only orders who is ended first when memory runs out. */
function oomScoreAdjust(resources: LinuxContainerResources | undefined, { HostConfig }: SandboxInspect): number {
  const wanted = Number(resources?.oomScoreAdj ?? 0n);
  return (HostConfig.OomScoreAdj ?? 0) < 0 ? wanted : Math.max(0, wanted);
}

/** Paths are masked and read-only exactly as CRI lists them; a privileged container has none. */
function securitySettings(security: LinuxContainerSecurityContext): HostConfig {
  const { privileged, capabilities, readonlyRootfs, supplementalGroups, maskedPaths, readonlyPaths } = security;
  if (capabilities && capabilities.addAmbientCapabilities.length > 0)
    throw new CodedError("unimplemented", "ambient capabilities are not known to Docker");
  return {
    Privileged: privileged,
    ReadonlyRootfs: readonlyRootfs,
    CapAdd: capabilities?.addCapabilities ?? [],
    CapDrop: capabilities?.dropCapabilities ?? [],
    GroupAdd: supplementalGroups.map(String),
    ...(!privileged && { MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths }),
  };
}

/** @see https://docs.docker.com/engine/logging/drivers/json-file/ */
function logConfig({ maxSizeBytes, maxFiles }: ContainerLogLimits): HostConfig["LogConfig"] {
  return {
    Type: "json-file",
    Config: { "max-size": String(maxSizeBytes), "max-file": String(Math.max(1, maxFiles)) },
  };
}
