import type { Pod, Volume } from "../objects.ts";

/** In-tree volume types whose volumes are mounted by a CSI driver. */
const migratedTypes = [
  "awsElasticBlockStore",
  "azureDisk",
  "azureFile",
  "cinder",
  "gcePersistentDisk",
  "portworxVolume",
  "vsphereVolume",
] as const;

/** The in-tree type of a volume that is mounted by its CSI driver; undefined for other volumes. Pure.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#csi-migration */
export function migratedTypeOf(
  volume: Partial<Record<(typeof migratedTypes)[number], unknown>>,
): (typeof migratedTypes)[number] | undefined {
  return migratedTypes.find((type) => volume[type] !== undefined);
}

/** Name of a volume's PersistentVolumeClaim: referenced by the pod, or created for a generic ephemeral volume; undefined for other
 *  types.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming */
export function claimNameOf({ metadata }: Pick<Pod, "metadata">, volume: Volume): string | undefined {
  if (volume.persistentVolumeClaim) return volume.persistentVolumeClaim.claimName;
  return volume.ephemeral ? `${metadata.name}-${volume.name}` : undefined;
}
