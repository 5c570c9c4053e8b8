import { posix } from "node:path";
import { mountTmpfsCommand } from "../../../src/host/mounts.ts";
import type { FileChange } from "../../../src/seams/host.ts";
import { printfFormat, quote, quoteAll } from "../shell/quote.ts";

const directoryMode = 0o755;
const fileMode = 0o644;

/** Shell word that expands to the number of changes made. */
export const changesMade = '"$gl_made"';

/** Limit of paths per chmod command. */
const maxPathsPerChmod = 200;

/** Returns a shell script (for shells with our prelude) that applies the changes in order and stops at the first failure. New
 *  files are private until their mode is set; existing directories keep their mode. Consecutive new files and directories with
 *  the same mode share one chmod.
 *  @throws invalid_argument for a path with a NUL. */
export function applyScript(changes: readonly FileChange[]): string {
  const modes = createModeBatch();
  const steps = changes.flatMap((change, index) => {
    const made = `gl_made=${index + 1}`;
    const ahead = startsRun(changes, index) ? aheadOf(runFrom(changes, index)) : [];
    if (change.kind !== "write" && change.kind !== "mkdir")
      return [...modes.settle(index), ...ahead, `${command(change)} || break; ${made}`];
    const makes = newPaths(change);
    return [...ahead, ...makes.flatMap((make) => [...modes.add(make, index), make.line]), made];
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

function startsRun(changes: readonly FileChange[], index: number): boolean {
  return changes[index - 1]?.kind !== changes[index]?.kind;
}

/** The consecutive changes of the same kind from an index on. */
function runFrom(changes: readonly FileChange[], index: number): readonly FileChange[] {
  const end = changes.findIndex(({ kind }, at) => at > index && kind !== changes[index]?.kind);
  return changes.slice(index, end < 0 ? undefined : end);
}

/** Script lines that make consecutive directories or links by few commands: starting a program is what takes time. Each change is still
 *  made by its own line, which starts none if nothing is left to do, and reports the failure. */
function aheadOf(run: readonly FileChange[]): readonly string[] {
  return [...directoriesAhead(run), ...linksAhead(run)];
}

function directoriesAhead(run: readonly FileChange[]): readonly string[] {
  const modes = new Map<string, number>();
  for (const change of run) {
    if (change.kind !== "mkdir") return [];
    for (const { path, bits } of directoriesOf(change)) if (!modes.has(path)) modes.set(path, bits);
  }
  const lines: string[] = [];
  let group: string[] = [];
  const paths = [...modes];
  for (const [at, [path, mode]] of paths.entries()) {
    group.push(quote(path));
    if (paths[at + 1]?.[1] === mode) continue;
    if (group.length > 1 && mode <= 0o777) lines.push(`gl_mkdirs ${maskOf(mode)} ${octal(mode)} ${group.join(" ")}`);
    group = [];
  }
  return lines;
}

/** Links of one directory that are named like their targets. */
function linksAhead(run: readonly FileChange[]): readonly string[] {
  if (run[0]?.kind !== "symlink") return [];
  const targets = new Map<string, string[]>();
  for (const change of run) {
    if (change.kind !== "symlink" || posix.basename(change.target) !== posix.basename(change.path)) continue;
    const directory = posix.dirname(change.path);
    targets.set(directory, [...(targets.get(directory) ?? []), quote(change.target)]);
  }
  const together = [...targets].filter(([, links]) => links.length > 1);
  return ["gl_links=", ...together.map(([directory, links]) => `gl_symlinks ${quote(directory)} ${links.join(" ")}`)];
}

interface NewPath {
  readonly path: string;
  readonly mode: string;
  /** Creates the path and adds it to the pending paths of the next chmod. */
  readonly line: string;
}

/** Tracks the paths whose mode has not been set yet. */
function createModeBatch() {
  let waiting = new Set<string>();
  let mode: string | undefined;
  let since = 0;
  const flush = (index: number): string[] => {
    const line = `gl_modes "$@" || { gl_made=${since}; break; }; set --`;
    const lines = waiting.size > 0 ? [line] : [];
    waiting = new Set();
    mode = undefined;
    since = index;
    return lines;
  };
  return {
    settle: flush,
    /** Adds a path. @returns script lines that have to precede its creation. */
    add(make: NewPath, index: number): string[] {
      const together = mode === make.mode && !waiting.has(make.path) && waiting.size < maxPathsPerChmod;
      const lines = together ? [] : [...flush(index), `gl_mode=${make.mode}`];
      mode = make.mode;
      waiting.add(make.path);
      return lines;
    },
  };
}

function newPaths(change: Extract<FileChange, { kind: "mkdir" | "write" }>): readonly NewPath[] {
  if (change.kind === "write") {
    const path = quote(change.path);
    const mode = change.mode ?? fileMode;
    // A new file gets its mode from the umask, which cannot add bits for execution.
    const mask = (mode & ~0o666) === 0 ? ` ${maskOf(mode)}` : "";
    const line = `gl_write ${path} ${printfFormat(change.data)}${mask} || break; [ $gl_new = 0 ] || set -- "$@" ${path}`;
    return [{ path: change.path, mode: octal(mode), line }];
  }
  return directoriesOf(change).map(({ path, bits }) => directory(path, bits));
}

/** The directories that a change makes, from the top down, with their modes. */
function directoriesOf(change: Extract<FileChange, { kind: "mkdir" }>) {
  const above = change.parents === true ? ancestors(change.path) : [];
  return [
    ...above.map((path) => ({ path, bits: directoryMode })),
    { path: change.path, bits: change.mode ?? directoryMode },
  ];
}

/** The umask with which mkdir sets a mode. */
function maskOf(mode: number): string {
  return (0o777 & ~mode).toString(8).padStart(3, "0");
}

function directory(path: string, mode: number): NewPath {
  const quoted = quote(path);
  // mkdir sets the mode if possible, because chmod would follow a link that replaces the directory meanwhile.
  const mask = mode <= 0o777 ? ` ${maskOf(mode)}` : "";
  return {
    path,
    mode: octal(mode),
    line: `gl_mkdir ${quoted}${mask} || break; [ $gl_new = 0 ] || set -- "$@" ${quoted}`,
  };
}

/** Returns the path of a change, for messages. */
export function changePath(change: FileChange): string {
  return change.kind === "rename" ? change.from : change.path;
}

function command(change: Exclude<FileChange, { kind: "mkdir" | "write" }>): string {
  switch (change.kind) {
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
    case "mountTmpfs":
      return quoteAll(mountTmpfsCommand(change.path, change.options));
    case "remove":
      return `gl_remove ${quote(posix.dirname(change.path))} ${quote(posix.basename(change.path))} ${change.recursive === true ? "tree" : "one"}`;
  }
}

function ancestors(path: string): string[] {
  const parent = posix.dirname(path);
  return parent === path || parent === "/" || parent === "." ? [] : [...ancestors(parent), parent];
}

/** Formats a mode with five digits: with fewer, chmod keeps a directory's set-id bits. */
function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(5, "0");
}
