import type { Volume } from "../objects.ts";

/** What a volume says it is made from, by the API's field names: exactly one in a valid pod. */
export function volumeSources(volume: Volume): readonly string[] {
  return Object.keys(volume).filter((field) => field !== "name");
}
