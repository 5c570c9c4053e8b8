import { posix } from "node:path";
import type { FileChange } from "../../../src/seams/host.ts";
import { printfFormat, quote } from "../shell/quote.ts";

const directoryMode = 0o755;
const fileMode = 0o644;

/** Shell words that tell how many of the changes were made. */
export const changesMade = '"$gl_made"';

/** Paths that get their mode together, at most. */
const mostTogether = 200;

/** A script for a shell of ours that makes the changes in order and stops at the first that fails. What it makes is closed to
 *  others until it has its mode, and nothing is given one that was there; files and directories made one after another get it together, in one command.
 *  @throws invalid_argument for a path with a NUL. */
export function applyScript(changes: readonly FileChange[]): string {
  const modes = createModes();
  const steps = changes.flatMap((change, index) => {
    const made = `gl_made=${index + 1}`;
    if (change.do !== "write" && change.do !== "mkdir")
      return [...modes.settle(index), `${command(change)} || break; ${made}`];
    const makes = makings(change);
    return [...makes.flatMap((make) => [...modes.take(make, index), make.line]), made];
  });
  return [
    "umask 077; gl_made=0; set --",
    "for gl_once in 1; do",
    ...steps,
    ...modes.settle(changes.length),
    "done",
    'gl_modes "$@"; umask 022',
  ].join("\n");
}

/** A path to be made, and what its mode is to be. */
interface Making {
  readonly path: string;
  readonly mode: string;
  /** Makes it, and puts it among those that wait for their mode. */
  readonly line: string;
}

/** Keeps account of what waits for its mode in the script so far. */
function createModes() {
  let waiting = new Set<string>();
  let mode: string | undefined;
  let since = 0;
  const settle = (index: number): string[] => {
    const line = `gl_modes "$@" || { gl_made=${since}; break; }; set --`;
    const lines = waiting.size > 0 ? [line] : [];
    waiting = new Set();
    mode = undefined;
    since = index;
    return lines;
  };
  return {
    settle,
    /** Lines to go before what makes the path. */
    take(make: Making, index: number): string[] {
      const together = mode === make.mode && !waiting.has(make.path) && waiting.size < mostTogether;
      const lines = together ? [] : [...settle(index), `gl_mode=${make.mode}`];
      mode = make.mode;
      waiting.add(make.path);
      return lines;
    },
  };
}

function makings(change: Extract<FileChange, { do: "mkdir" | "write" }>): readonly Making[] {
  if (change.do === "write") {
    const path = quote(change.path);
    const line = `gl_write ${path} ${printfFormat(change.data)} || break; set -- "$@" ${path}`;
    return [{ path: change.path, mode: octal(change.mode ?? fileMode), line }];
  }
  const above = change.parents === true ? ancestors(change.path) : [];
  return [...above.map((path) => directory(path, directoryMode)), directory(change.path, change.mode ?? directoryMode)];
}

function directory(path: string, mode: number): Making {
  const quoted = quote(path);
  // Made with its mode where mkdir can: a chmod would go through a link put in its place meanwhile.
  const mask = mode <= 0o777 ? ` ${(0o777 & ~mode).toString(8).padStart(3, "0")}` : "";
  return {
    path,
    mode: octal(mode),
    line: `gl_mkdir ${quoted}${mask} || break; [ $gl_new = 0 ] || set -- "$@" ${quoted}`,
  };
}

/** The path that a change is about, for messages. */
export function pathOf(change: FileChange): string {
  return change.do === "rename" ? change.from : change.path;
}

function command(change: Exclude<FileChange, { do: "mkdir" | "write" }>): string {
  switch (change.do) {
    case "create":
      return `gl_create ${quote(change.path)}`;
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

function ancestors(path: string): string[] {
  const parent = posix.dirname(path);
  return parent === path || parent === "/" || parent === "." ? [] : [...ancestors(parent), parent];
}

/** Five digits: with fewer, chmod leaves the set-id bits of a directory as they are. */
function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(5, "0");
}
