import type { Container, Pod, PodSpec } from "../objects.ts";
import { commonUser } from "../pod/common-user.ts";
import type { TargetFeature } from "../seams/provider.ts";
import type { RuntimeFeature } from "../seams/runtime.ts";
import type { Unserved } from "./decisions.ts";
import { quantityMilli } from "../pod/quantity.ts";

/** Why the node's runtime or target lacks a feature; undefined if it has it. */
export type Lacks = (feature: RuntimeFeature | TargetFeature, signal: AbortSignal) => Promise<string | undefined>;

/** Node settings that reduce what a pod requires. */
export interface LackingSettings {
  /** KubeletConfiguration.cpuCFSQuota: if false, CPU limits are not enforced. */
  readonly cpuCfsQuota: boolean;
}

/** A field that requires a feature not every node has. */
interface Asked {
  readonly field: string;
  readonly feature: RuntimeFeature | TargetFeature;
}

/** Fields of a pod that the node's runtime or target cannot support, each with the reason. */
export async function lacking(
  { spec }: Pod,
  { lacks, cpuCfsQuota }: LackingSettings & { readonly lacks: Lacks },
  signal: AbortSignal,
): Promise<readonly Unserved[]> {
  const asked = [
    ...askedByPod(spec),
    ...lists(spec).flatMap(([path, container]) => askedByContainer(spec, path, container)),
  ].filter(({ feature }) => feature !== "cpuLimit" || cpuCfsQuota);
  const reasons = await Promise.all(asked.map(({ feature }) => lacks(feature, signal)));
  return asked.flatMap(({ field }, at) => {
    const why = reasons[at];
    return why === undefined ? [] : [{ field, why }];
  });
}

function lists({
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

function askedByPod(spec: PodSpec): readonly Asked[] {
  const grouped = typeof spec.securityContext?.fsGroup === "number" && (spec.volumes ?? []).some(isOwned);
  return [
    ...profiles("spec.securityContext", spec.securityContext),
    ...ownedTokens(spec),
    ...hugePages(spec),
    ...imageVolumes(spec),
    ...(grouped ? [{ field: "spec.securityContext.fsGroup", feature: "fileOwner" } as const] : []),
  ];
}

/** Volumes created by the node are owned by the pod's fsGroup; hostPath and image volumes are not. */
function isOwned({ hostPath, image }: NonNullable<PodSpec["volumes"]>[number]): boolean {
  return hostPath === undefined && image === undefined;
}

/** Token files are owned by the user that all containers run as; changing the owner needs a privilege. */
function ownedTokens(spec: PodSpec): readonly Asked[] {
  if (commonUser(spec) === undefined) return [];
  return (spec.volumes ?? []).flatMap(({ projected }, at) =>
    projected?.sources?.some(({ serviceAccountToken }) => serviceAccountToken)
      ? [{ field: `spec.volumes[${at}].projected`, feature: "fileOwner" } as const]
      : [],
  );
}

/** Memory-backed emptyDirs can fall back to disk, huge pages cannot. */
function hugePages({ volumes = [] }: PodSpec): readonly Asked[] {
  return volumes.flatMap(({ emptyDir }, at) =>
    emptyDir?.medium?.startsWith("HugePages")
      ? [{ field: `spec.volumes[${at}].emptyDir.medium`, feature: "mount" } as const]
      : [],
  );
}

function imageVolumes({ volumes = [] }: PodSpec): readonly Asked[] {
  return volumes.flatMap(({ image }, at) =>
    image ? [{ field: `spec.volumes[${at}].image`, feature: "imageVolume" } as const] : [],
  );
}

function askedByContainer(spec: PodSpec, path: string, container: Container): readonly Asked[] {
  const { securityContext, resources } = container;
  const asked: Asked[] = [
    ...profiles(`${path}.securityContext`, securityContext),
    ...madeMounts(spec, path, container),
  ];
  if (securityContext?.privileged) asked.push({ field: `${path}.securityContext.privileged`, feature: "privileged" });
  if (isLimited(resources?.limits?.["memory"]))
    asked.push({ field: `${path}.resources.limits.memory`, feature: "memoryLimit" });
  if (isLimited(resources?.limits?.["cpu"])) asked.push({ field: `${path}.resources.limits.cpu`, feature: "cpuLimit" });
  return asked;
}

/** A limit of 0 means no limit. */
function isLimited(limit: string | undefined): boolean {
  return limit !== undefined && quantityMilli(limit) > 0;
}

/** subPaths are bind-mounted where containers cannot move them, and mount propagation needs the node's volume to be a mount. Images are
 *  mounted by the runtime. */
function madeMounts({ volumes = [] }: PodSpec, path: string, { volumeMounts = [] }: Container): readonly Asked[] {
  return volumeMounts.flatMap(({ name, subPath, subPathExpr, mountPropagation = "None" }, at) => {
    const volume = volumes.find((one) => one.name === name);
    if (volume?.image) return [];
    const made = volume !== undefined && !volume.hostPath;
    const fields = [
      ...(subPath ? ["subPath"] : []),
      ...(subPathExpr ? ["subPathExpr"] : []),
      ...(mountPropagation !== "None" && made ? ["mountPropagation"] : []),
    ];
    return fields.map((field) => ({ field: `${path}.volumeMounts[${at}].${field}`, feature: "mount" }) as const);
  });
}

function profiles(path: string, security: PodSpec["securityContext"] | Container["securityContext"]): readonly Asked[] {
  const { seccompProfile, appArmorProfile } = security ?? {};
  const confines = (profile: { readonly type: string } | undefined) => profile && profile.type !== "Unconfined";
  return [
    ...(confines(seccompProfile) ? [{ field: `${path}.seccompProfile`, feature: "seccomp" } as const] : []),
    ...(confines(appArmorProfile) ? [{ field: `${path}.appArmorProfile`, feature: "appArmor" } as const] : []),
  ];
}
