import type { Volume } from "../../objects.ts";
import { claim } from "../persistent/claim.ts";
import { nfs } from "../nfs.ts";
import { csi } from "./csi.ts";
import { downwardAPI } from "./downward-api.ts";
import { emptyDir } from "./empty-dir.ts";
import { hostPath } from "./host-path.ts";
import type { VolumeKind } from "./kind.ts";
import { configMap, secret } from "./objects.ts";
import { projected } from "./projected.ts";

const kinds = {
  emptyDir,
  hostPath,
  configMap,
  secret,
  projected,
  downwardAPI,
  persistentVolumeClaim: claim,
  ephemeral: claim,
  csi,
  nfs,
} as const satisfies Readonly<Record<string, VolumeKind>>;

/** The plugin for a volume; undefined for an unsupported type. */
export function kindOf(volume: Volume): VolumeKind | undefined {
  for (const [field, kind] of Object.entries(kinds)) if (volume[field as keyof typeof kinds] !== undefined) return kind;
  return undefined;
}
