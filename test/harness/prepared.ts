import { readFileSync } from "node:fs";
import type { ContainerdVersion } from "./containerd-version.ts";
import type { ToolFolders } from "./tools.ts";

/** What a run of many test files makes once, for all of them. */
export interface Prepared {
  readonly tools: Readonly<Record<ContainerdVersion, ToolFolders>>;
  /** The folder that registries serve. */
  readonly images: string;
  /** Graftlet in one file. */
  readonly graftlet: string;
}

/** Names the file that `prepare.ts` wrote. */
export const preparedVariable = "GRAFTLET_TEST_PREPARED";

/** What was made for all; undefined where a test file is run by itself, and sees to everything. */
export function prepared(): Prepared | undefined {
  const file = process.env[preparedVariable];
  return file ? (JSON.parse(readFileSync(file, "utf8")) as Prepared) : undefined;
}
