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
