import { posix } from "node:path";
import {
  Capability,
  LinuxContainerSecurityContext,
  NamespaceMode,
  NamespaceOption,
  SELinuxOption,
  SecurityProfile,
  SecurityProfile_ProfileType as ProfileType,
  SupplementalGroupsPolicy,
  type UserNamespace,
} from "../gen/cri.ts";
import type { Container, Pod, PodSpec } from "../objects.ts";
import { allContainers } from "./containers.ts";

export type SecurityContext = NonNullable<Container["securityContext"]>;
type PodSecurityContext = NonNullable<Pod["spec"]["securityContext"]>;

/** The image's default user. */
export interface ImageUser {
  readonly uid?: bigint;
  /** Set only if the image's user is not numeric. */
  readonly username?: string;
}

const maskedPaths = [
  "/proc/asound",
  "/proc/acpi",
  "/proc/interrupts",
  "/proc/kcore",
  "/proc/keys",
  "/proc/latency_stats",
  "/proc/timer_list",
  "/proc/timer_stats",
  "/proc/sched_debug",
  "/proc/scsi",
  "/sys/firmware",
  "/sys/devices/virtual/powercap",
];
const readonlyPaths = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
const maxUid = 2n ** 31n - 1n;

/** The effective security context: the container's own, completed from the pod's.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/ */
export function effectiveSecurityContext(pod: Pod, container: Container): SecurityContext {
  const { seLinuxOptions, runAsUser, runAsGroup, runAsNonRoot } = pod.spec.securityContext ?? {};
  const inherited = { seLinuxOptions, runAsUser, runAsGroup, runAsNonRoot };
  const own = Object.entries(container.securityContext ?? {}).filter(
    ([, value]) => value !== undefined && value !== null,
  );
  return { ...inherited, ...Object.fromEntries(own) };
}

/** Checks runAsNonRoot.
 *  @throws Error with the kubelet's text.
 *  @see https://kubernetes.io/docs/concepts/security/pod-security-standards/ */
export function verifyRunAsNonRoot(pod: Pod, container: Container, { uid, username }: ImageUser): void {
  const { runAsNonRoot, runAsUser } = effectiveSecurityContext(pod, container);
  if (runAsNonRoot !== true) return;
  const { name, namespace, uid: podUid } = pod.metadata;
  const where = `(pod: "${name}_${namespace}(${podUid})", container: ${container.name})`;
  if (runAsUser !== undefined) {
    if (runAsUser === 0) throw new Error(`container's runAsUser breaks non-root policy ${where}`);
    return;
  }
  if (uid === undefined && username) {
    throw new Error(
      `container has runAsNonRoot and image has non-numeric user (${username}), cannot verify user is non-root ${where}`,
    );
  }
  if (uid === 0n) throw new Error(`container has runAsNonRoot and image will run as root ${where}`);
  if (uid !== undefined && (uid < 0n || uid > maxUid)) {
    const range = `(Must be 1-(${maxUid})): must be between 0 and ${maxUid}, inclusive`;
    throw new Error(`container has runAsNonRoot and image has an invalid user id (${uid}). ${range} ${where}`);
  }
}

export interface ContainerSecurityInput {
  readonly pod: Pod;
  readonly container: Container;
  readonly imageUser: ImageUser;
  /** Groups that own the files of the pod's volumes. */
  readonly volumeGroups: readonly bigint[];
  /** ID of the container whose PID namespace this one shares. */
  readonly targetId?: string;
  /** The user namespace of the pod's sandbox. */
  readonly userNamespace?: UserNamespace | undefined;
  /** Directory of Localhost profiles on the target: `<root>/seccomp`. */
  readonly seccompRoot: string;
  /** KubeletConfiguration.seccompDefault. */
  readonly seccompDefault: boolean;
  /** Additional paths to mask on this target. */
  readonly moreMaskedPaths: readonly string[];
}

/** A container's CRI security context. @throws Error for an incomplete profile. */
export function containerSecurity(input: ContainerSecurityInput): LinuxContainerSecurityContext {
  const { pod, container, imageUser } = input;
  const context = effectiveSecurityContext(pod, container);
  const { runAsUser, runAsGroup, capabilities, seLinuxOptions } = context;
  const profile = appArmorProfile(pod, container);
  const unmasked = context.procMount === "Unmasked";
  return LinuxContainerSecurityContext.fromPartial({
    privileged: context.privileged ?? false,
    readonlyRootfs: context.readOnlyRootFilesystem ?? false,
    noNewPrivs: context.allowPrivilegeEscalation === false,
    ...(capabilities && {
      capabilities: Capability.fromPartial({
        addCapabilities: capabilities.add ?? [],
        dropCapabilities: capabilities.drop ?? [],
      }),
    }),
    ...(seLinuxOptions && { selinuxOptions: seLinux(seLinuxOptions) }),
    ...(runAsUser !== undefined ? { runAsUser: { value: BigInt(runAsUser) } } : userOf(imageUser)),
    ...(runAsGroup !== undefined && { runAsGroup: { value: BigInt(runAsGroup) } }),
    namespaceOptions: withTarget(namespaces(pod, input.userNamespace), input.targetId),
    supplementalGroups: supplementalGroups(pod.spec.securityContext, input.volumeGroups),
    supplementalGroupsPolicy: groupsPolicy(pod.spec.securityContext),
    seccomp: seccompProfile(input),
    ...(profile && { apparmor: profile.profile, apparmorProfile: profile.legacyName }),
    maskedPaths: unmasked ? [] : [...maskedPaths, ...input.moreMaskedPaths],
    readonlyPaths: unmasked ? [] : readonlyPaths,
  });
}

function userOf({ uid, username }: ImageUser): { runAsUser?: { value: bigint }; runAsUsername?: string } {
  return uid !== undefined ? { runAsUser: { value: uid } } : { runAsUsername: username ?? "" };
}

/** The namespace options of a pod: shared with the host, within the pod, or (PID) per container.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/share-process-namespace/ */
export function namespaces({ spec }: Pod, userNamespace?: UserNamespace): NamespaceOption {
  return NamespaceOption.fromPartial({
    network: spec.hostNetwork ? NamespaceMode.NODE : NamespaceMode.POD,
    ipc: spec.hostIPC ? NamespaceMode.NODE : NamespaceMode.POD,
    pid: spec.hostPID ? NamespaceMode.NODE : spec.shareProcessNamespace ? NamespaceMode.POD : NamespaceMode.CONTAINER,
    ...(userNamespace && { usernsOptions: userNamespace }),
  });
}

/** True if the pod gets its own user namespace.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/ */
export function hasUserNamespace({ spec: { hostUsers } }: Pod): boolean {
  return hostUsers === false;
}

function withTarget(options: NamespaceOption, targetId: string | undefined): NamespaceOption {
  if (targetId === undefined || options.pid !== NamespaceMode.CONTAINER) return options;
  return { ...options, pid: NamespaceMode.TARGET, targetId };
}

/** fsGroup, then the supplementalGroups, then the groups of the volumes' files, each once. */
export function supplementalGroups(
  context: PodSecurityContext | undefined,
  ofVolumes: readonly bigint[] = [],
): bigint[] {
  const { fsGroup, supplementalGroups: named = [] } = context ?? {};
  const requested = named.map(BigInt);
  const more = new Set(ofVolumes.filter((group) => !requested.includes(group)));
  return [...(fsGroup === undefined ? [] : [BigInt(fsGroup)]), ...requested, ...more];
}

/** @throws Error for a policy that CRI does not have. */
export function groupsPolicy(context: PodSecurityContext | undefined): SupplementalGroupsPolicy {
  switch (context?.supplementalGroupsPolicy) {
    case undefined:
    case "Merge":
      return SupplementalGroupsPolicy.Merge;
    case "Strict":
      return SupplementalGroupsPolicy.Strict;
    default:
      throw new Error(`unsupported supplementalGroupsPolicy: ${context?.supplementalGroupsPolicy}`);
  }
}

export function seLinux({ user, role, type, level }: NonNullable<SecurityContext["seLinuxOptions"]>): SELinuxOption {
  return SELinuxOption.fromPartial({ user: user ?? "", role: role ?? "", type: type ?? "", level: level ?? "" });
}

/** True if any container of the pod is privileged. */
export function hasPrivileged(pod: Pod): boolean {
  return allContainers(pod).some(({ container }) => container.securityContext?.privileged === true);
}

/** @see https://kubernetes.io/docs/tutorials/security/seccomp/ */
function seccompProfile({ pod, container, seccompRoot, seccompDefault }: ContainerSecurityInput): SecurityProfile {
  const profile = container.securityContext?.seccompProfile ?? pod.spec.securityContext?.seccompProfile;
  const type = profile?.type ?? (seccompDefault ? "RuntimeDefault" : "Unconfined");
  if (type === "RuntimeDefault") return SecurityProfile.fromPartial({ profileType: ProfileType.RuntimeDefault });
  if (type !== "Localhost") return SecurityProfile.fromPartial({ profileType: ProfileType.Unconfined });
  if (!profile?.localhostProfile) throw new Error("localhostProfile must be set if seccompProfile type is Localhost.");
  return SecurityProfile.fromPartial({
    profileType: ProfileType.Localhost,
    localhostRef: posix.join(seccompRoot, profile.localhostProfile),
  });
}

/** Prefix of the deprecated annotation for a container's profile. */
export const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/";

/** The profile, and its name in the deprecated CRI field.
 *  @see https://kubernetes.io/docs/tutorials/security/apparmor/ */
function appArmorProfile(pod: Pod, container: Container): { profile: SecurityProfile; legacyName: string } | undefined {
  const own = container.securityContext?.appArmorProfile;
  const annotated = annotatedProfile(pod.metadata.annotations?.[appArmorAnnotation + container.name]);
  const profile = own ?? annotated ?? pod.spec.securityContext?.appArmorProfile;
  switch (profile?.type) {
    case undefined:
      return undefined;
    case "RuntimeDefault":
      return {
        profile: SecurityProfile.fromPartial({ profileType: ProfileType.RuntimeDefault }),
        legacyName: "runtime/default",
      };
    case "Unconfined":
      return {
        profile: SecurityProfile.fromPartial({ profileType: ProfileType.Unconfined }),
        legacyName: "unconfined",
      };
    case "Localhost": {
      const name = profile.localhostProfile;
      if (!name) throw new Error("missing localhost apparmor profile name");
      return {
        profile: SecurityProfile.fromPartial({ profileType: ProfileType.Localhost, localhostRef: name }),
        legacyName: `localhost/${name}`,
      };
    }
    default:
      throw new Error(`unknown apparmor profile type: "${profile?.type}"`);
  }
}

function annotatedProfile(value: string | undefined): { type: string; localhostProfile?: string } | undefined {
  if (value === "runtime/default") return { type: "RuntimeDefault" };
  if (value === "unconfined") return { type: "Unconfined" };
  return value?.startsWith("localhost/")
    ? { type: "Localhost", localhostProfile: value.slice("localhost/".length) }
    : undefined;
}

/** A sysctl name separated by dots, as runtimes and kernel namespaces name it. In the notation with slashes, dots and slashes are
 *  swapped, since a segment may contain dots. @see https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/ */
export function sysctlName(name: string): string {
  if (/[./]/.exec(name)?.[0] !== "/") return name;
  return name.replaceAll(/[./]/g, (separator) => (separator === "/" ? "." : "/"));
}

/** The user ID that the spec sets for all containers, which owns the pod's service account tokens; undefined if the IDs differ or one is
 *  left to the image. */
export function commonUser(spec: PodSpec): number | undefined {
  const containers = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  const users = new Set(
    containers.map(({ securityContext }) => securityContext?.runAsUser ?? spec.securityContext?.runAsUser),
  );
  return users.size === 1 ? [...users][0] : undefined;
}
