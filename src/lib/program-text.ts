import { readFileSync } from "node:fs";
import { join } from "node:path";

/** In the bundle tools/build.ts puts the programs here, by their paths in the repository. */
declare const builtPrograms: Readonly<Record<string, string>>;

/** Reads a program that runs on targets, a file of its own language beside the source that runs it. Its comments are left out: they would go
 *  over the link each time.
 *  @param path relative to the repository's root, such as `src/service-tunnel/relay.py`. */
export function programText(path: string): string {
  if (typeof builtPrograms === "undefined")
    return withoutComments(readFileSync(join(import.meta.dirname, "..", "..", path), "utf8"));
  const text = builtPrograms[path];
  if (text === undefined) throw new Error(`the bundle has no program ${path}`);
  return text;
}

/** Removes the lines of a Python, Perl or shell program that are comments. Pure; tools/build.ts calls it, too. */
export function withoutComments(program: string): string {
  return program.replace(/^[ \t]*#.*\n/gm, "");
}
