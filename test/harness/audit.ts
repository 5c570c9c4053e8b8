import { closeSync, existsSync, openSync, readSync, statSync } from "node:fs";
import { auditLog } from "./control-plane.ts";
import type { Layout } from "./state.ts";

/** What somebody asked the API server. */
export interface Deed {
  readonly verb: string;
  readonly stage: string;
  readonly user: { readonly username: string };
  readonly objectRef?: {
    readonly resource?: string;
    readonly subresource?: string;
    readonly apiGroup?: string;
    readonly name?: string;
  };
  readonly annotations?: Readonly<Record<string, string>>;
}

/** How far the API server has written, for `deedsOf` to go on from; 0 before it has written anything. */
export function auditedSoFar(layout: Layout): number {
  return existsSync(auditLog(layout)) ? statSync(auditLog(layout)).size : 0;
}

/** All that the API server has written down since `from`, in order. */
export function deedsOf(layout: Layout, from = 0): readonly Deed[] {
  const bytes = Buffer.alloc(auditedSoFar(layout) - from);
  if (bytes.length === 0) return [];
  const file = openSync(auditLog(layout), "r");
  try {
    const read = readSync(file, bytes, 0, bytes.length, from);
    const lines = bytes.toString("utf8", 0, read).split("\n");
    return lines.filter((line) => line.endsWith("}")).map((line) => JSON.parse(line) as Deed);
  } finally {
    closeSync(file);
  }
}
