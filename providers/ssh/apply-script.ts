import { posix } from "node:path";
import type { FileChange } from "../../src/seams/host.ts";
import { printfFormat, quote } from "./quote.ts";

const directoryMode = 0o755;
const fileMode = 0o644;

/** Shell words that tell how many of the changes were made. */
export const changesMade = '"$gl_made"';

/** A script for a shell of ours that makes the changes in order and stops at the first that fails. What it makes is closed to
 *  others until it has its mode.
 *  @throws invalid_argument for a path with a NUL. */
export function applyScript(changes: readonly FileChange[]): string {
  const steps = changes.map((change, index) => `${command(change)} || break; gl_made=${index + 1}`);
  return ["umask 077; gl_made=0", "for gl_once in 1; do", ...steps, "done; umask 022"].join("\n");
}

/** The path that a change is about, for messages. */
export function pathOf(change: FileChange): string {
  return change.do === "rename" ? change.from : change.path;
}

function command(change: FileChange): string {
  switch (change.do) {
    case "mkdir":
      return makeDirectory(change.path, change.mode ?? directoryMode, change.parents === true);
    case "write":
      return `gl_write ${quote(change.path)} ${octal(change.mode ?? fileMode)} ${printfFormat(change.data)}`;
    case "symlink":
      return `gl_symlink ${quote(change.path)} ${quote(change.target)}`;
    case "rename":
      return `mv -fT -- ${quote(change.from)} ${quote(change.to)}`;
    case "chmod":
      return `chmod -- ${octal(change.mode)} ${quote(change.path)}`;
    case "chown":
      return `chown -h -- ${change.uid}:${change.gid} ${quote(change.path)}`;
    case "remove":
      return `gl_remove ${quote(posix.dirname(change.path))} ${quote(posix.basename(change.path))} ${change.recursive === true ? "tree" : "one"}`;
  }
}

function makeDirectory(path: string, mode: number, parents: boolean): string {
  const own = `gl_mkdir ${quote(path)} ${octal(mode)}`;
  const above = parents ? ancestors(path) : [];
  if (above.length === 0) return own;
  const all = [...above.map((each) => `gl_mkdir ${quote(each)} ${octal(directoryMode)}`), own];
  return `{ [ -d ${quote(path)} ] || { ${all.join(" && ")}; }; }`;
}

function ancestors(path: string): string[] {
  const parent = posix.dirname(path);
  return parent === path || parent === "/" || parent === "." ? [] : [...ancestors(parent), parent];
}

/** Five digits: with fewer, chmod leaves the set-id bits of a directory as they are. */
function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(5, "0");
}
