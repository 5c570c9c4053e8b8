import { CodedError } from "../../lib/errors.ts";
import type { PersistentVolume } from "../../objects.ts";

export type CsiSource = NonNullable<NonNullable<PersistentVolume["spec"]>["csi"]>;

/** The CSI source of a PersistentVolume. @throws failed_precondition if it has none. */
export function csiSourceOf({ metadata, spec }: PersistentVolume): CsiSource {
  if (spec?.csi) return spec.csi;
  throw new CodedError("failed_precondition", `volume source not found in volume.Spec of ${metadata.name}`);
}
