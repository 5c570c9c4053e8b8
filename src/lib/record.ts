import { parseBoundedJson } from "./bounded-text.ts";

/** True for a plain JSON object, neither null nor a list. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value as a JSON object; undefined where it is none. */
export function recordOf(value: unknown): Record<string, unknown> | undefined {
  return isRecord(value) ? value : undefined;
}

/** Names and values of a JSON object; none for another value. */
export function entriesOf(value: unknown): readonly (readonly [string, unknown])[] {
  return Object.entries(recordOf(value) ?? {});
}

/** The JSON object that a text is; undefined where it is none, or has too many values. */
export function recordIn(text: string): Record<string, unknown> | undefined {
  try {
    return recordOf(parseBoundedJson(Buffer.from(text)));
  } catch {
    return undefined;
  }
}
