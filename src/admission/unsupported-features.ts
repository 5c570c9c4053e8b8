import type { Container, Pod, PodSpec } from "../objects.ts";
import type { TargetFeature } from "../seams/provider.ts";
import type { RuntimeFeature } from "../seams/runtime.ts";
import type { UnsupportedField } from "./field-decisions.ts";
import { quantityMilli } from "../pod/quantity.ts";
import { commonUser } from "../pod/security.ts";

/** Why the node's runtime or target lacks a feature; undefined if it has it. */
export type FeatureCheck = (
  feature: RuntimeFeature | TargetFeature,
  signal: AbortSignal,
) => Promise<string | undefined>;

/** Node settings that reduce what a pod requires. */
export interface FeatureSettings {
  /** KubeletConfiguration.cpuCFSQuota: if false, CPU limits are not enforced. */
  readonly cpuCfsQuota: boolean;
}

/** A field that requires a feature not every node has. */
interface RequiredFeature {
  readonly field: string;
  readonly feature: RuntimeFeature | TargetFeature;
}

/** Fields of a pod that the node's runtime or target cannot support, each with the reason. */
export async function unsupportedFeatures(
  { spec, status }: Pod,
  { checkFeature, cpuCfsQuota }: FeatureSettings & { readonly checkFeature: FeatureCheck },
  signal: AbortSignal,
): Promise<readonly UnsupportedField[]> {
  const required = [
    ...requiredByPod(spec),
    ...claimedDevices(spec, status),
    ...containerLists(spec).flatMap(([path, container]) => requiredByContainer(spec, path, container)),
  ].filter(({ feature }) => feature !== "cpuLimit" || cpuCfsQuota);
  const reasons = await Promise.all(required.map(({ feature }) => checkFeature(feature, signal)));
  return required.flatMap(({ field }, at) => {
    const why = reasons[at];
    return why === undefined ? [] : [{ field, why }];
  });
}

function containerLists({
  initContainers = [],
  containers,
  ephemeralContainers = [],
}: PodSpec): readonly (readonly [string, Container])[] {
  return [
    ...initContainers.map((container, at) => [`spec.initContainers[${at}]`, container] as const),
    ...containers.map((container, at) => [`spec.containers[${at}]`, container] as const),
    ...ephemeralContainers.map((container, at) => [`spec.ephemeralContainers[${at}]`, container] as const),
  ];
}

function requiredByPod(spec: PodSpec): readonly RequiredFeature[] {
  const grouped = typeof spec.securityContext?.fsGroup === "number" && (spec.volumes ?? []).some(isOwnedByGroup);
  return [
    ...profileFeatures("spec.securityContext", spec.securityContext),
    ...tokenOwners(spec),
    ...hugePages(spec),
    ...imageVolumes(spec),
    ...(spec.hostUsers === false ? [{ field: "spec.hostUsers", feature: "userNamespace" } as const] : []),
    ...(grouped ? [{ field: "spec.securityContext.fsGroup", feature: "fileOwner" } as const] : []),
  ];
}

/** Devices of ResourceClaims, including those that the scheduler allocated for extended resources. */
function claimedDevices({ resourceClaims = [] }: PodSpec, status: Pod["status"]): readonly RequiredFeature[] {
  return [
    ...(resourceClaims.length > 0 ? [{ field: "spec.resourceClaims", feature: "cdiDevices" } as const] : []),
    ...(status?.extendedResourceClaimStatus
      ? [{ field: "status.extendedResourceClaimStatus", feature: "cdiDevices" } as const]
      : []),
  ];
}

/** Volumes created by the node are owned by the pod's fsGroup; hostPath and image volumes are not. */
function isOwnedByGroup({ hostPath, image }: NonNullable<PodSpec["volumes"]>[number]): boolean {
  return hostPath === undefined && image === undefined;
}

/** Token files are owned by the user that all containers run as; changing the owner needs a privilege. */
function tokenOwners(spec: PodSpec): readonly RequiredFeature[] {
  if (commonUser(spec) === undefined) return [];
  return (spec.volumes ?? []).flatMap(({ projected }, at) =>
    projected?.sources?.some(({ serviceAccountToken }) => serviceAccountToken)
      ? [{ field: `spec.volumes[${at}].projected`, feature: "fileOwner" } as const]
      : [],
  );
}

/** Memory-backed emptyDirs can fall back to disk, huge pages cannot. */
function hugePages({ volumes = [] }: PodSpec): readonly RequiredFeature[] {
  return volumes.flatMap(({ emptyDir }, at) =>
    emptyDir?.medium?.startsWith("HugePages")
      ? [{ field: `spec.volumes[${at}].emptyDir.medium`, feature: "mount" } as const]
      : [],
  );
}

function imageVolumes({ volumes = [] }: PodSpec): readonly RequiredFeature[] {
  return volumes.flatMap(({ image }, at) =>
    image ? [{ field: `spec.volumes[${at}].image`, feature: "imageVolume" } as const] : [],
  );
}

function requiredByContainer(spec: PodSpec, path: string, container: Container): readonly RequiredFeature[] {
  const { securityContext, resources } = container;
  const required: RequiredFeature[] = [
    ...profileFeatures(`${path}.securityContext`, securityContext),
    ...mountFeatures(spec, path, container),
  ];
  if (securityContext?.privileged)
    required.push({ field: `${path}.securityContext.privileged`, feature: "privileged" });
  if (isLimited(resources?.limits?.["memory"]))
    required.push({ field: `${path}.resources.limits.memory`, feature: "memoryLimit" });
  if (isLimited(resources?.limits?.["cpu"]))
    required.push({ field: `${path}.resources.limits.cpu`, feature: "cpuLimit" });
  return required;
}

/** A limit of 0 means no limit. */
function isLimited(limit: string | undefined): boolean {
  return limit !== undefined && quantityMilli(limit) > 0;
}

/** Features that a container's volume mounts require. The node bind-mounts subPaths, so that containers cannot move them; mount
 *  propagation requires the volume itself to be a mount. The runtime mounts images and their subPaths. */
function mountFeatures(
  { volumes = [] }: PodSpec,
  path: string,
  { volumeMounts = [] }: Container,
): readonly RequiredFeature[] {
  return volumeMounts.flatMap(({ name, subPath, subPathExpr, mountPropagation = "None" }, at): RequiredFeature[] => {
    const volume = volumes.find((one) => one.name === name);
    if (volume?.image)
      return subPath ? [{ field: `${path}.volumeMounts[${at}].subPath`, feature: "imageSubPath" }] : [];
    const made = volume !== undefined && !volume.hostPath;
    const fields = [
      ...(subPath ? ["subPath"] : []),
      ...(subPathExpr ? ["subPathExpr"] : []),
      ...(mountPropagation !== "None" && made ? ["mountPropagation"] : []),
    ];
    return fields.map((field) => ({ field: `${path}.volumeMounts[${at}].${field}`, feature: "mount" }));
  });
}

function profileFeatures(
  path: string,
  security: PodSpec["securityContext"] | Container["securityContext"],
): readonly RequiredFeature[] {
  const { seccompProfile, appArmorProfile } = security ?? {};
  const confines = (profile: { readonly type: string } | undefined) => profile && profile.type !== "Unconfined";
  return [
    ...(confines(seccompProfile) ? [{ field: `${path}.seccompProfile`, feature: "seccomp" } as const] : []),
    ...(confines(appArmorProfile) ? [{ field: `${path}.appArmorProfile`, feature: "appArmor" } as const] : []),
  ];
}
