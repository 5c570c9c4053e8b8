import { readFileSync } from "node:fs";
import { join } from "node:path";

/** Texts of the programs by their paths in the repository; set in the bundle by tools/build.ts. */
declare const builtPrograms: Readonly<Record<string, string>>;

/** Reads a program that runs on targets: a file in its own language next to the source that runs it. Comments are removed, as they would
 *  be sent over the link each time.
 *  @param path relative to the repository's root, such as `src/service-tunnel/relay.py`. */
export function programText(path: string): string {
  if (typeof builtPrograms === "undefined")
    return withoutComments(readFileSync(join(import.meta.dirname, "..", "..", path), "utf8"));
  const text = builtPrograms[path];
  if (text === undefined) throw new Error(`the bundle has no program ${path}`);
  return text;
}

/** Removes the comment lines of a Python, Perl or shell program. Pure; also called by tools/build.ts. */
export function withoutComments(program: string): string {
  return program.replace(/^[ \t]*#.*\n/gm, "");
}
