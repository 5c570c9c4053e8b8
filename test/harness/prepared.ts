import { readFileSync } from "node:fs";
import type { ContainerdVersion } from "./containerd-version.ts";
import type { ToolFolders } from "./tools.ts";

/** Products of a run of many test files that all of them share. */
export interface Prepared {
  readonly tools: Readonly<Record<ContainerdVersion, ToolFolders>>;
  /** The folder that registries serve. */
  readonly images: string;
  /** The folder of `keepFirstStore`; a run of few clusters has none. */
  readonly store?: string;
  /** Graftlet in one file. */
  readonly graftlet: string;
}

/** Names the file that `prepare.ts` wrote. */
export const preparedVariable = "GRAFTLET_TEST_PREPARED";

/** Shared parts of the run; undefined for a test file that runs by itself and makes its own. */
export function prepared(): Prepared | undefined {
  const file = process.env[preparedVariable];
  return file ? (JSON.parse(readFileSync(file, "utf8")) as Prepared) : undefined;
}
