import type { Volume } from "../objects.ts";

/** Kinds of a volume's source in the spec, by the API's field names: exactly one in a valid pod. */
export function volumeSources(volume: Volume): readonly string[] {
  return Object.keys(volume).filter((field) => field !== "name");
}
