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

/** Fields of a volume's spec that are no type. */
const common = new Set(
  [
    "accessModes capacity claimRef mountOptions nodeAffinity persistentVolumeReclaimPolicy storageClassName",
    "volumeAttributesClassName volumeMode",
  ].flatMap((names) => names.split(" ")),
);

/** How the types of volumes leave the target that have more than a mount in the pod's directory. */
export const leavings: readonly Leaving[] = Object.values(kinds).flatMap(
  ({ leaving }: PersistentKind) => leaving ?? [],
);

/** The code for a persistent volume's type. @throws UnprocessedError that names a type that is not served. */
export function persistentKindOf({ metadata: { name }, spec }: PersistentVolume): PersistentKind {
  for (const [field, kind] of Object.entries(kinds)) if (spec?.[field as keyof typeof kinds]) return kind;
  const type =
    Object.entries(spec ?? {}).find(([field, value]) => value !== undefined && !common.has(field))?.[0] ?? "none";
  throw new UnprocessedError(
    `failed to get Plugin from volumeSpec for volume "${name}" err=no volume plugin matched: persistent volumes of type ${type} are not served by this node`,
  );
}

/** Full name of the plugin that serves a volume: that of drivers has the driver's name, too. Pure. */
export function pluginOf({ plugin }: PersistentKind, { spec }: PersistentVolume): string {
  return spec?.csi ? `${plugin}:${spec.csi.driver}` : plugin;
}
