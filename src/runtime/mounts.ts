import { posix } from "node:path";
import { Mount, MountPropagation } from "../gen/cri.ts";
import type { Container, Pod, VolumeMount } from "../objects.ts";
import type { MountedVolume } from "../pipeline.ts";

export interface MountsInput {
  readonly pod: Pod;
  readonly container: Container;
  /** The pod's volumes on the target, by name. */
  readonly mounted: ReadonlyMap<string, MountedVolume>;
  /** The target has SELinux: volumes that the node manages are relabelled for the container. */
  readonly selinux: boolean;
}

const propagations: Readonly<Record<string, MountPropagation>> = {
  None: MountPropagation.PROPAGATION_PRIVATE,
  HostToContainer: MountPropagation.PROPAGATION_HOST_TO_CONTAINER,
  Bidirectional: MountPropagation.PROPAGATION_BIDIRECTIONAL,
};

/** A container's volumeMounts in the runtime's terms, in order.
 *  @throws Error with the kubelet's text when a volume is not there or a mount cannot be made as asked.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/ */
export function volumeMounts({ pod, container, mounted, selinux }: MountsInput): Mount[] {
  return (container.volumeMounts ?? []).map((mount) => {
    const volume = mounted.get(mount.name);
    if (!volume) throw new Error(`cannot find volume "${mount.name}" to mount into container "${container.name}"`);
    refuseUnserved(mount);
    return Mount.fromPartial({
      containerPath: absolute(mount.mountPath),
      hostPath: volume.hostPath,
      readonly: mount.readOnly === true || volume.readOnly,
      propagation: propagationOf(mount),
      selinuxRelabel: selinux && isManaged(pod, mount.name),
    });
  });
}

/** Where a path of the spec lies in the container. */
export function absolute(path: string): string {
  return path.startsWith("/") ? path : posix.join("/", path);
}

/** Admission holds such pods; mounting something else than asked would be worse than an error. */
function refuseUnserved({ name, subPath, subPathExpr, recursiveReadOnly }: VolumeMount): void {
  if (subPath || subPathExpr) throw new Error(`volumeMounts["${name}"].subPath is not served`);
  if (recursiveReadOnly !== "Enabled") return;
  throw new Error(
    `failed to resolve recursive read-only mode: volume "${name}" requested recursive read-only mode, but it is not supported by the runtime`,
  );
}

function propagationOf({ mountPropagation }: VolumeMount): MountPropagation {
  const known = propagations[mountPropagation ?? "None"];
  if (known === undefined) throw new Error(`invalid MountPropagation mode: "${mountPropagation}"`);
  return known;
}

/** A hostPath belongs to the machine: its labels are not the node's to change. */
function isManaged(pod: Pod, volumeName: string): boolean {
  return pod.spec.volumes?.some(({ name, hostPath }) => name === volumeName && !hostPath) === true;
}
