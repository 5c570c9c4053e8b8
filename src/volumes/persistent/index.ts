import type { PersistentVolume } from "../../objects.ts";
import { UnprocessedError } from "../failure.ts";
import { persistentNfs } from "../nfs.ts";
import { csi } from "./csi.ts";
import { persistentHostPath } from "./host-path.ts";
import type { PersistentKind } from "./kind.ts";
import type { Leaving } from "./leaving.ts";
import { local } from "./local.ts";

const kinds = { hostPath: persistentHostPath, local, csi, nfs: persistentNfs } as const satisfies Readonly<
  Record<string, PersistentKind>
>;

/** Fields of a PersistentVolume spec that do not name a volume type. */
const common = new Set(
  [
    "accessModes capacity claimRef mountOptions nodeAffinity persistentVolumeReclaimPolicy storageClassName",
    "volumeAttributesClassName volumeMode",
  ].flatMap((names) => names.split(" ")),
);

/** Unstagers of the volume types that have more than a mount in the pod's directory. */
export const leavings: readonly Leaving[] = Object.values(kinds).flatMap(
  ({ leaving }: PersistentKind) => leaving ?? [],
);

/** The plugin for a persistent volume. @throws UnprocessedVolumeError that names an unsupported type. */
export function persistentKindOf({ metadata: { name }, spec }: PersistentVolume): PersistentKind {
  for (const [field, kind] of Object.entries(kinds)) if (spec?.[field as keyof typeof kinds]) return kind;
  const type =
    Object.entries(spec ?? {}).find(([field, value]) => value !== undefined && !common.has(field))?.[0] ?? "none";
  throw new UnprocessedError(
    `failed to get Plugin from volumeSpec for volume "${name}" err=no volume plugin matched: persistent volumes of type ${type} are not supported by this node`,
  );
}

/** Full plugin name of a volume; for CSI it includes the driver's name. Pure. */
export function pluginOf({ plugin }: PersistentKind, { spec }: PersistentVolume): string {
  return spec?.csi ? `${plugin}:${spec.csi.driver}` : plugin;
}
