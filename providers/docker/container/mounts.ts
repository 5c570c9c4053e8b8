import type { MountPropagation as DockerPropagation, MountSettings } from "dockerode";
import { type Mount, MountPropagation } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";

/** An entry of HostConfig.Mounts. Daemons that lack an option (API 1.41) behave as it says by default, or refuse the
 *  missing source. */
export interface BindMount extends Omit<MountSettings, "BindOptions"> {
  readonly BindOptions: {
    /** Without it Docker mounts privately, or as a slave if the source is in or contains its own directory: it refuses an explicit private
     *  there. */
    readonly Propagation?: DockerPropagation;
    readonly CreateMountpoint: boolean;
    readonly ReadOnlyNonRecursive?: boolean;
  };
}

export interface ContainerMounts {
  readonly Mounts: MountSettings[];
  /** The older form, the only one with SELinux relabelling. */
  readonly Binds: string[];
}

/** CRI mounts in the Engine API's form, in order. A missing source becomes a directory, and read-only is not recursive, as with CRI
 *  runtimes.
 *  @throws CodedError unimplemented for features that the Engine API lacks, invalid_argument.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.44/#tag/Container/operation/ContainerCreate */
export function containerMounts(mounts: readonly Mount[]): ContainerMounts {
  for (const mount of mounts) rejectUnsupported(mount);
  return {
    // dockerode's types ask for a propagation; the API does not.
    Mounts: mounts.filter(({ selinuxRelabel }) => !selinuxRelabel).map(bindMount) as MountSettings[],
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
      `the mount ${containerPath} of ${hostPath} cannot be relabelled for SELinux by Docker: its path contains a colon`,
    );
  const name = propagationName(propagation);
  const options = [...(readonly ? ["ro"] : []), ...(name === undefined ? [] : [name]), "Z"];
  return `${hostPath}:${containerPath}:${options.join(",")}`;
}

/** Undefined to leave the choice to Docker. @see `BindMount` */
function propagationName(propagation: MountPropagation): DockerPropagation | undefined {
  switch (propagation) {
    case MountPropagation.PROPAGATION_PRIVATE:
      return undefined;
    case MountPropagation.PROPAGATION_HOST_TO_CONTAINER:
      return "rslave";
    case MountPropagation.PROPAGATION_BIDIRECTIONAL:
      return "rshared";
    default:
      throw new CodedError("invalid_argument", `mount propagation ${propagation} is not known`);
  }
}

function rejectUnsupported({ containerPath, image, recursiveReadOnly, uidMappings, gidMappings }: Mount): void {
  const refuse = (what: string) => new CodedError("unimplemented", `mount ${containerPath}: Docker has no ${what}`);
  if (image) throw refuse("image volumes");
  if (recursiveReadOnly) throw refuse("reliable recursive read-only mounts");
  if (uidMappings.length > 0 || gidMappings.length > 0) throw refuse("ID-mapped mounts");
}
