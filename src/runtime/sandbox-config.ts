import { isIPv6 } from "node:net";
import {
  type DNSConfig,
  type LinuxContainerResources,
  LinuxPodSandboxConfig,
  LinuxSandboxSecurityContext,
  PodSandboxConfig,
  SecurityProfile,
  SecurityProfile_ProfileType as ProfileType,
  PortMapping,
  Protocol,
  type UserNamespace,
} from "../gen/cri.ts";
import type { Pod, Container } from "../objects.ts";
import { podNameLabel, podNamespaceLabel, podUidLabel } from "../pod/labels.ts";
import { type ResourceSettings, cpuAndMemory, podLimits, podRequests } from "../pod/resources.ts";
import { groupsPolicy, hasPrivileged, namespaces, seLinux, supplementalGroups, sysctlName } from "../pod/security.ts";

export interface SandboxConfigInput {
  readonly pod: Pod;
  readonly attempt: number;
  /** Hostname of the pod; empty for the host's own. */
  readonly hostname: string;
  readonly dns: DNSConfig;
  readonly cgroupParent: string;
  readonly userNamespace: UserNamespace;
  /** Directory of the pod's logs on the target. */
  readonly logDirectory: string;
  readonly resources: ResourceSettings;
  /** Labels that identify this node's pods on a shared runtime; otherwise empty. */
  readonly ownerLabels: Readonly<Record<string, string>>;
}

/** The kubelet's RunPodSandbox configuration. @throws Error for a policy that CRI does not have.
 *  @see https://kubernetes.io/docs/concepts/architecture/cri/ */
export function buildSandboxConfig(input: SandboxConfigInput): PodSandboxConfig {
  const { pod, ownerLabels } = input;
  const { name, namespace, uid, labels, annotations } = pod.metadata;
  return PodSandboxConfig.fromPartial({
    metadata: { name, namespace, uid, attempt: input.attempt },
    hostname: input.hostname,
    logDirectory: input.logDirectory,
    dnsConfig: input.dns,
    portMappings: portMappings(pod),
    labels: { ...labels, ...ownerLabels, [podNameLabel]: name, [podNamespaceLabel]: namespace, [podUidLabel]: uid },
    annotations: { ...annotations },
    linux: linuxConfig(input),
  });
}

function linuxConfig({ pod, cgroupParent, userNamespace, resources }: SandboxConfigInput): LinuxPodSandboxConfig {
  const sysctls = pod.spec.securityContext?.sysctls ?? [];
  return LinuxPodSandboxConfig.fromPartial({
    cgroupParent,
    sysctls: Object.fromEntries(sysctls.map(({ name, value }) => [sysctlName(name), value])),
    securityContext: securityContext(pod, userNamespace),
    resources: sandboxResources(pod, resources),
    overhead: overheadOf(pod, resources),
  });
}

/** The sandbox always has the runtime's default seccomp profile, even if its containers run unconfined. */
function securityContext(pod: Pod, userNamespace: UserNamespace): LinuxSandboxSecurityContext {
  const context = pod.spec.securityContext;
  const base = {
    privileged: hasPrivileged(pod),
    seccomp: SecurityProfile.fromPartial({ profileType: ProfileType.RuntimeDefault }),
  };
  const { runAsUser, runAsGroup, seLinuxOptions } = context ?? {};
  return LinuxSandboxSecurityContext.fromPartial({
    ...base,
    ...(runAsUser !== undefined && { runAsUser: { value: BigInt(runAsUser) } }),
    ...(runAsGroup !== undefined && { runAsGroup: { value: BigInt(runAsGroup) } }),
    namespaceOptions: namespaces(pod, userNamespace),
    supplementalGroups: supplementalGroups(context),
    supplementalGroupsPolicy: groupsPolicy(context),
    ...(seLinuxOptions && { selinuxOptions: seLinux(seLinuxOptions) }),
  });
}

function sandboxResources(pod: Pod, settings: ResourceSettings): LinuxContainerResources {
  const limits = podLimits(pod, { overhead: false });
  const cpuRequest = podRequests(pod, { overhead: false }).cpu;
  const exclusive = settings.hasExclusiveCpus?.(pod);
  return cpuAndMemory({ cpuRequest, cpuLimit: limits.cpu, memoryLimit: limits.memory, exclusive }, settings);
}

/** Resources of the sandbox itself, with limits equal to requests. */
export function overheadOf({ spec }: Pod, settings: ResourceSettings): Partial<LinuxContainerResources> {
  if (!spec.overhead) return {};
  const { cpu, memory } = spec.overhead;
  return cpuAndMemory({ cpuRequest: cpu ?? "0", cpuLimit: cpu, memoryLimit: memory }, settings);
}

type ContainerPort = NonNullable<Container["ports"]>[number];

const protocols: Readonly<Record<string, Protocol>> = { TCP: Protocol.TCP, UDP: Protocol.UDP, SCTP: Protocol.SCTP };

/** Port mappings of a pod's main containers for its sandbox; a host port of 0 publishes nothing. Of ports with equal names, or equal
 *  numbers without a name, the first counts. (kubelet; init containers' ports are not passed) */
export function portMappings(pod: Pod): PortMapping[] {
  return pod.spec.containers.flatMap(({ ports = [] }) => {
    const byName = new Map<string, ContainerPort>();
    for (const port of ports) if (!byName.has(portKey(port))) byName.set(portKey(port), port);
    return [...byName.values()].map(toMapping);
  });
}

function toMapping({ protocol, containerPort, hostPort, hostIP }: ContainerPort): PortMapping {
  return PortMapping.fromPartial({
    protocol: protocols[protocol ?? "TCP"] ?? Protocol.TCP,
    containerPort,
    hostPort: hostPort ?? 0,
    hostIp: hostIP ?? "",
  });
}

function portKey({ name, protocol, containerPort, hostPort, hostIP = "" }: ContainerPort): string {
  const family = hostIP === "" ? "any" : isIPv6(hostIP) ? "v6" : "v4";
  return name || `${family}-${protocol ?? "TCP"}-${hostIP}:${containerPort}:${hostPort ?? 0}`;
}
