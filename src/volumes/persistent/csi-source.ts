import { CodedError } from "../../lib/errors.ts";
import type { PersistentVolume } from "../../objects.ts";

/** What a persistent volume says of itself to its storage driver. */
export type CsiSource = NonNullable<NonNullable<PersistentVolume["spec"]>["csi"]>;

/** The driver's part of a persistent volume. @throws failed_precondition for one without. */
export function sourceOf({ metadata, spec }: PersistentVolume): CsiSource {
  if (spec?.csi) return spec.csi;
  throw new CodedError("failed_precondition", `volume source not found in volume.Spec of ${metadata.name}`);
}
