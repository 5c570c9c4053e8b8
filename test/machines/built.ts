import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { type BuiltRuntime, programsOf } from "../harness/tools.ts";

/** Where a machine has the programs that the harness builds: before Debian's on PATH. */
export const builtPrograms = "/usr/local/sbin";

/** Copies the programs of a runtime that the harness built into a machine. @param built the folder that `buildRuntime` returns.
 *  @param root the folder that is / there. */
export function installBuilt(runtime: BuiltRuntime, built: string, root: string): void {
  const folder = join(root, builtPrograms);
  mkdirSync(folder, { recursive: true });
  for (const name of programsOf[runtime]) copyFileSync(join(built, name), join(folder, name));
}
