import { readFileSync } from "node:fs";
import { join } from "node:path";
import { must } from "../../test/harness/processes.ts";

/** The version of a module that go.mod requires. Pure. @throws where it requires none. */
export function requiredVersion(goMod: string, path: string): string {
  const words = goMod.split("\n").map((line) => line.trim().split(/\s+/));
  const version = words.find(([first]) => first === path)?.[1];
  if (!version) throw new Error(`tools/schemas/go.mod does not require ${path}`);
  return version;
}

/** The folder of a module that go.mod beside this file requires, held to go.sum: Go's cache has it, or Go's proxy.
 *  @see https://go.dev/ref/mod#go-mod-download */
export async function moduleFolder(path: string): Promise<string> {
  const version = requiredVersion(readFileSync(join(import.meta.dirname, "go.mod"), "utf8"), path);
  const download = ["go", "mod", "download", "-json", `${path}@${version}`];
  const { Dir } = JSON.parse(await must(download, { cwd: import.meta.dirname, timeoutMs: 600_000 })) as { Dir: string };
  return Dir;
}
