import { posix } from "node:path";
import { type Device, type ImageSpec, Mount, MountPropagation } from "../gen/cri.ts";
import type { Container, Pod, VolumeMount } from "../objects.ts";
import type { MountedVolume, SubPathMount } from "../pipeline.ts";
import { createArgumentSizes, expand } from "../pod/expand.ts";

export interface MountsInput {
  readonly pod: Pod;
  readonly container: Container;
  /** The pod's volumes on the target, by name. */
  readonly mounted: ReadonlyMap<string, MountedVolume>;
  /** subPath paths by index in volumeMounts: on the target, or in the image. */
  readonly subPaths: ReadonlyMap<number, string>;
  /** Images that the runtime mounts, by volume. */
  readonly images: ReadonlyMap<string, ImageSpec>;
  /** The runtime supports recursive read-only mounts. */
  readonly recursiveReadOnly: boolean;
  /** The target has SELinux: volumes managed by the node are relabelled for the container. */
  readonly selinux: boolean;
}

const propagations: Readonly<Record<string, MountPropagation>> = {
  None: MountPropagation.PROPAGATION_PRIVATE,
  HostToContainer: MountPropagation.PROPAGATION_HOST_TO_CONTAINER,
  Bidirectional: MountPropagation.PROPAGATION_BIDIRECTIONAL,
};

/** A container's volumeMounts as CRI mounts, in order.
 *  @throws Error with the kubelet's text if a volume is missing or a mount cannot be made as requested.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/ */
export function volumeMounts(input: MountsInput): Mount[] {
  const { pod, container, mounted, subPaths, images, recursiveReadOnly, selinux } = input;
  return (container.volumeMounts ?? []).map((mount, index) => {
    const image = images.get(mount.name);
    if (image) return imageMount(input, mount, index, image);
    const volume = mounted.get(mount.name);
    if (!volume) throw new Error(`cannot find volume "${mount.name}" to mount into container "${container.name}"`);
    return Mount.fromPartial({
      containerPath: absolutePath(mount.mountPath),
      hostPath: subPaths.get(index) ?? volume.hostPath,
      readonly: mount.readOnly === true || volume.readOnly,
      propagation: propagationOf(mount),
      recursiveReadOnly: isRecursive(mount, recursiveReadOnly),
      selinuxRelabel: selinux && mayRelabel(pod, mount.name, volume),
    });
  });
}

/** A container's volumeDevices as CRI devices, in order.
 *  @throws Error with the kubelet's text if a volume is missing.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support */
export function volumeDevices(
  mounted: ReadonlyMap<string, MountedVolume>,
  { name: container, volumeDevices: requested = [] }: Container,
): Device[] {
  return requested.map(({ name, devicePath }) => {
    if (!posix.isAbsolute(devicePath)) throw new Error(`error DevicePath \`${devicePath}\` must be an absolute path`);
    const volume = mounted.get(name);
    if (!volume?.persistent?.isDevice)
      throw new Error(`cannot find volume "${name}" to pass into container "${container}"`);
    const permissions = volume.readOnly ? "r" : "mrw";
    return { containerPath: devicePath, hostPath: volume.hostPath, permissions };
  });
}

/** A read-only mount of an image, which the runtime resolves. */
function imageMount(
  { subPaths, recursiveReadOnly }: MountsInput,
  mount: VolumeMount,
  index: number,
  image: ImageSpec,
): Mount {
  return Mount.fromPartial({
    containerPath: absolutePath(mount.mountPath),
    image,
    imageSubPath: subPaths.get(index) ?? "",
    readonly: true,
    propagation: propagationOf(mount),
    recursiveReadOnly: isRecursive(mount, recursiveReadOnly),
  });
}

/** The subPaths of a container's volumeMounts, in order.
 *  @param environment the container's environment, for `subPathExpr`.
 *  @throws Error with the kubelet's text, or one that names an expression whose result is too long.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath-expanded-environment */
export function volumeSubPaths(
  container: Container,
  environment: ReadonlyMap<string, string>,
): readonly SubPathMount[] {
  const sum = createArgumentSizes("subPathExpr and subPath of the container's volumeMounts");
  return (container.volumeMounts ?? []).flatMap((mount, index) => {
    const what = `subPathExpr of volumeMounts[${index}]`;
    const subPath = mount.subPathExpr ? expandedPath(mount.subPathExpr, environment, what) : (mount.subPath ?? "");
    sum.add(what, subPath);
    if (subPath === "") return [];
    if (subPath.startsWith("/")) throw new Error(`error SubPath \`${subPath}\` must not be an absolute path`);
    if (subPath.split("/").includes(".."))
      throw new Error(`unable to provision SubPath \`${subPath}\`: must not contain '..'`);
    return [{ index, volume: mount.name, subPath }];
  });
}

function expandedPath(expression: string, environment: ReadonlyMap<string, string>, what: string): string {
  const missing = new Set<string>();
  const valueOf = (name: string) => {
    const value = environment.get(name);
    if (!value) missing.add(name);
    return value;
  };
  const expanded = expand(expression, valueOf, what);
  if (missing.size > 0) throw new Error(`missing value for ${[...missing].sort().join(", ")}`);
  return expanded;
}

/** Makes a mount path of the spec absolute. */
export function absolutePath(path: string): string {
  return path.startsWith("/") ? path : posix.join("/", path);
}

/** @throws Error with the kubelet's text if the mount requires a recursive read-only mount and cannot have it.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#recursive-read-only-mounts */
function isRecursive(
  { name, readOnly, mountPropagation = "None", recursiveReadOnly }: VolumeMount,
  can: boolean,
): boolean {
  if (!recursiveReadOnly || recursiveReadOnly === "Disabled") return false;
  const refusal = (why: string) =>
    new Error(
      `failed to resolve recursive read-only mode: volume "${name}" requested recursive read-only mode, but it is ${why}`,
    );
  if (!readOnly) throw refusal("not read-only");
  if (mountPropagation !== "None") throw refusal(`not compatible with propagation "${mountPropagation}"`);
  if (recursiveReadOnly === "IfPossible") return can;
  if (recursiveReadOnly !== "Enabled")
    throw new Error(
      `failed to resolve recursive read-only mode: unknown recursive read-only mode "${recursiveReadOnly}"`,
    );
  if (!can) throw refusal("not supported by the runtime");
  return true;
}

function propagationOf({ mountPropagation }: VolumeMount): MountPropagation {
  const known = propagations[mountPropagation ?? "None"];
  if (known === undefined) throw new Error(`invalid MountPropagation mode: "${mountPropagation}"`);
  return known;
}

/** Plugins whose files the node must not relabel: they belong to the host, or to a server. */
const unmanagedPlugins: readonly string[] = ["kubernetes.io/host-path", "kubernetes.io/nfs"];

/** True if the node may relabel the volume. False for hostPath and NFS volumes, for read-only claims and inline CSI volumes, and for CSI
 *  file systems without labels. */
function mayRelabel(pod: Pod, volumeName: string, { persistent, readOnly, unlabelled }: MountedVolume): boolean {
  if (unlabelled) return false;
  if (persistent) return !unmanagedPlugins.includes(persistent.plugin) && !readOnly;
  const volume = pod.spec.volumes?.find(({ name }) => name === volumeName);
  return volume !== undefined && !volume.hostPath && !(volume.csi && readOnly);
}
