import type { Pod, Volume } from "../objects.ts";

/** Name of a volume's PersistentVolumeClaim: referenced by the pod, or created for a generic ephemeral volume; undefined for other
 *  types.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming */
export function claimNameOf({ metadata }: Pick<Pod, "metadata">, volume: Volume): string | undefined {
  if (volume.persistentVolumeClaim) return volume.persistentVolumeClaim.claimName;
  return volume.ephemeral ? `${metadata.name}-${volume.name}` : undefined;
}
