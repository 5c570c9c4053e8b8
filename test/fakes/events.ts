import type { EventSink } from "../../src/pipeline.ts";

/** Keeps events as lines: `Type Reason message`. */
export function eventLines(): EventSink & { readonly lines: string[] } {
  const lines: string[] = [];
  return { lines, event: (_about, type, reason, message) => void lines.push(`${type} ${reason} ${message}`) };
}
