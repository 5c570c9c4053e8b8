import type { PersistentVolume } from "../../objects.ts";
import { UnprocessedVolumeError } from "../failure.ts";
import { persistentNfs } from "../nfs.ts";
import { persistentCsi } from "./csi.ts";
import { persistentIscsi } from "./iscsi.ts";
import { persistentHostPath } from "./host-path.ts";
import type { PersistentVolumePlugin } from "./plugin.ts";
import type { PersistentVolumeUnmounter } from "./unmounter.ts";
import { persistentLocal } from "./local.ts";

const plugins = {
  hostPath: persistentHostPath,
  local: persistentLocal,
  csi: persistentCsi,
  nfs: persistentNfs,
  iscsi: persistentIscsi,
} as const satisfies Readonly<Record<string, PersistentVolumePlugin>>;

/** Fields of a PersistentVolume spec that do not name a volume type. */
const commonFields = new Set(
  [
    "accessModes capacity claimRef mountOptions nodeAffinity persistentVolumeReclaimPolicy storageClassName",
    "volumeAttributesClassName volumeMode",
  ].flatMap((names) => names.split(" ")),
);

/** Unmounters of the volume types for which it is not enough to unmount the pod's directory. */
export const unmounters: readonly PersistentVolumeUnmounter[] = Object.values(plugins).flatMap(
  ({ unmounter }: PersistentVolumePlugin) => unmounter ?? [],
);

/** The plugin for a persistent volume. @throws UnprocessedVolumeError that names an unsupported type. */
export function persistentPluginFor({ metadata: { name }, spec }: PersistentVolume): PersistentVolumePlugin {
  for (const [field, plugin] of Object.entries(plugins)) if (spec?.[field as keyof typeof plugins]) return plugin;
  const type =
    Object.entries(spec ?? {}).find(([field, value]) => value !== undefined && !commonFields.has(field))?.[0] ?? "none";
  throw new UnprocessedVolumeError(
    `failed to get Plugin from volumeSpec for volume "${name}" err=no volume plugin matched: persistent volumes of type ${type} are not supported by this node`,
  );
}

/** Full plugin name of a volume; for CSI it includes the driver's name. Pure. */
export function pluginNameOf({ pluginName }: PersistentVolumePlugin, { spec }: PersistentVolume): string {
  return spec?.csi ? `${pluginName}:${spec.csi.driver}` : pluginName;
}
