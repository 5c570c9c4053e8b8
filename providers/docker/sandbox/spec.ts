import type { ContainerCreateOptions, HostConfig, PortMap } from "dockerode";
import {
  type LinuxSandboxSecurityContext,
  LinuxContainerSecurityContext,
  NamespaceMode,
  NamespaceOption,
  type PodSandboxConfig,
  type PortMapping,
  Protocol,
  SecurityProfile,
  SecurityProfile_ProfileType as ProfileType,
} from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { containerNameLabel } from "../../../src/pod/labels.ts";
import { dockerLabels } from "../container/labels.ts";
import { runtimeHandlerLabel, sandboxContainerName, sandboxType, typeLabel } from "../container/names.ts";
import { containerUser } from "../container/security-options.ts";

export interface SandboxSpecInput {
  readonly config: PodSandboxConfig;
  readonly runtimeHandler: string;
  readonly nodeName: string;
  readonly image: string;
  /** ID of the pods' network; none for pods on the host network. */
  readonly network?: string;
  /** `none` if the daemon creates no cgroups. */
  readonly cgroupDriver: string;
  readonly oomScoreAdj: number;
  /** HostConfig.SecurityOpt. */
  readonly securityOptions: readonly string[];
}

/** Returns the settings of the container that holds a pod's namespaces, as in cri-dockerd. Its program only waits, so it gets no
 *  privileges, even if the pod's containers do.
 *  @throws CodedError unimplemented if the pod needs its own user namespace.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate */
export function sandboxSpec(input: SandboxSpecInput): ContainerCreateOptions {
  const { config, runtimeHandler, nodeName, image, network } = input;
  const namespaces = namespacesOf(config);
  const ports = network === undefined ? [] : config.portMappings.filter(({ hostPort }) => hostPort > 0);
  return {
    Image: image,
    ...(network !== undefined && config.hostname !== "" && { Hostname: config.hostname }),
    User: sandboxUser(config),
    ExposedPorts: Object.fromEntries(ports.map((port) => [portName(port), {}])),
    Labels: dockerLabels(config, nodeName, {
      [typeLabel]: sandboxType,
      [containerNameLabel]: sandboxContainerName,
      ...(runtimeHandler !== "" && { [runtimeHandlerLabel]: runtimeHandler }),
    }),
    HostConfig: {
      ...namespaceModes(namespaces, network),
      ...resources(input),
      PortBindings: portBindings(ports),
      ...resolver(config),
      SecurityOpt: [...input.securityOptions],
      GroupAdd: (config.linux?.securityContext?.supplementalGroups ?? []).map(String),
      ReadonlyRootfs: true,
      Sysctls: config.linux?.sysctls ?? {},
      ...(runtimeHandler !== "" && { Runtime: runtimeHandler }),
      LogConfig: { Type: "none", Config: {} },
      // Overrides a daemon configured to add its own init.
      Init: false,
      RestartPolicy: { Name: "no" },
    },
  };
}

/** Returns the pod's namespace options; CRI's zero values mean that the pod has its own namespaces. */
export function namespacesOf({ linux }: PodSandboxConfig): NamespaceOption {
  return NamespaceOption.fromPartial(linux?.securityContext?.namespaceOptions ?? {});
}

/** Converts the sandbox's security context to that of a container; the daemon's seccomp profile is the default. */
export function sandboxSecurity(given: LinuxSandboxSecurityContext | undefined): LinuxContainerSecurityContext {
  const { runAsUser, runAsGroup, selinuxOptions, seccomp, apparmor } = given ?? {};
  return LinuxContainerSecurityContext.fromPartial({
    noNewPrivs: true,
    seccomp: seccomp ?? SecurityProfile.fromPartial({ profileType: ProfileType.RuntimeDefault }),
    ...(apparmor && { apparmor }),
    ...(selinuxOptions && { selinuxOptions }),
    ...(runAsUser && { runAsUser, ...(runAsGroup && { runAsGroup }) }),
  });
}

function sandboxUser({ linux }: PodSandboxConfig): string {
  return containerUser(sandboxSecurity(linux?.securityContext));
}

/** Containers join the IPC namespace of a sandbox that shares it. User remapping is off, even if the daemon remaps users by default:
 *  volumes belong to the machine's root. */
function namespaceModes({ ipc, pid, usernsOptions }: NamespaceOption, network: string | undefined): HostConfig {
  if (usernsOptions?.mode === NamespaceMode.POD)
    throw new CodedError("unimplemented", "Docker does not support user namespaces for individual pods");
  return {
    NetworkMode: network ?? "host",
    IpcMode: ipc === NamespaceMode.NODE ? "host" : "shareable",
    ...(pid === NamespaceMode.NODE && { PidMode: "host" }),
    ...(network === undefined && { UTSMode: "host" }),
    UsernsMode: "host",
  };
}

/** The smallest CPU weight, as the sandbox only waits. */
const cpuShares = 2;

function resources({ config, cgroupDriver, oomScoreAdj }: SandboxSpecInput): HostConfig {
  const path = config.linux?.cgroupParent ?? "";
  const parent = cgroupDriver === "systemd" ? path.slice(path.lastIndexOf("/") + 1) : path;
  return {
    CpuShares: cpuShares,
    ...(oomScoreAdj !== 0 && { OomScoreAdj: oomScoreAdj }),
    ...(parent !== "" && cgroupDriver !== "none" && { CgroupParent: parent }),
  };
}

/** DNS settings of Docker's own resolver, which is used until resolv.conf is overwritten (create.ts). */
function resolver({ dnsConfig }: PodSandboxConfig): HostConfig {
  if (!dnsConfig) return {};
  const { servers, searches, options } = dnsConfig;
  return { Dns: servers, DnsSearch: searches, DnsOptions: options };
}

const protocols: Readonly<Record<number, string>> = { [Protocol.UDP]: "udp", [Protocol.SCTP]: "sctp" };

function portName({ containerPort, protocol }: PortMapping): string {
  return `${containerPort}/${protocols[protocol] ?? "tcp"}`;
}

function portBindings(ports: readonly PortMapping[]): PortMap {
  const bindings: PortMap = {};
  for (const port of ports) {
    const binding = { HostIp: port.hostIp, HostPort: String(port.hostPort) };
    bindings[portName(port)] = [...(bindings[portName(port)] ?? []), binding];
  }
  return bindings;
}
