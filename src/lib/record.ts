import { parseBoundedJson } from "./bounded-text.ts";

/** True for a JSON object: neither null nor an array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value if it is a JSON object, else undefined. */
export function recordOf(value: unknown): Record<string, unknown> | undefined {
  return isRecord(value) ? value : undefined;
}

/** Entries of a JSON object; empty for other values. */
export function entriesOf(value: unknown): readonly (readonly [string, unknown])[] {
  return Object.entries(recordOf(value) ?? {});
}

/** Parses a JSON object; undefined for other texts, or one with too many values. */
export function recordIn(text: string): Record<string, unknown> | undefined {
  try {
    return recordOf(parseBoundedJson(Buffer.from(text)));
  } catch {
    return undefined;
  }
}
