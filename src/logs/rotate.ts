import { posix } from "node:path";
import { CodedError, ignoreNotFound } from "../lib/errors.ts";
import type { FileChange, Host, RunResult } from "../seams/host.ts";
import type { Containers } from "../seams/runtime.ts";
import { planRotation } from "./rotated-files.ts";
import { script } from "../seams/command.ts";

/** Timeout of a compression, milliseconds: a log may have become large while graftlet did not run. */
const compressMs = 600_000;

/** Exit codes of the commands below. */
const exitGone = 4;
const exitNameTaken = 5;
const exitCommandNotFound = 127;

/** Compresses `$1` to a new file in the same directory with the time of its last line, by which followers find the next file. */
const compressing = `
[ -f "$1" ] && [ ! -h "$1" ] || exit ${exitGone}
set -C
umask 077
gzip -c <"$1" >"$1.tmp" || exit
touch -r "$1" -- "$1.tmp"`;

/** Renames the log `$1` to its rotated name, with the machine's local time, and prints the name. Never replaces a file. */
const renaming = `
[ -f "$1" ] && [ ! -h "$1" ] || exit ${exitGone}
rotated=$1.$(date +%Y%m%d-%H%M%S) || exit
[ ! -e "$rotated" ] && [ ! -e "$rotated.gz" ] || exit ${exitNameTaken}
mv -- "$1" "$rotated" && echo "$rotated"`;

export interface RotateDeps {
  readonly host: Pick<Host, "run"> & { readonly fs: Pick<Host["fs"], "list" | "lstat" | "lstatAll" | "apply"> };
  readonly runtime: Pick<Containers, "reopenContainerLog">;
  /** Maximum number of files of a container's log, including the current one. */
  readonly maxFiles: number;
  /** Called if the target has no gzip: rotated logs stay uncompressed. */
  readonly onNoGzip: () => void;
}

/** A container's log. */
export interface LogToRotate {
  readonly containerId: string;
  /** Absolute path on the target. */
  readonly path: string;
}

/** Rotates one log like the kubelet: removes leftovers of interrupted rotations and files over the limit, compresses rotated
 *  files, renames the log and makes the runtime reopen it. Undoes the rename if the runtime fails. Defers a second rotation
 *  within the same second to the next round. Ignores a log that is gone or not a regular file. @throws CodedError of the
 *  target or the runtime.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation */
export async function rotateLog(deps: RotateDeps, log: LogToRotate, signal: AbortSignal): Promise<void> {
  const { host, maxFiles } = deps;
  const { dir, base } = posix.parse(log.path);
  const entries = (await ignoreNotFound(host.fs.list(dir, signal))) ?? [];
  const names = entries.filter(({ name, kind }) => kind === "file" && name.startsWith(`${base}.`));
  const { remove, compress } = planRotation(
    names.map(({ name }) => name),
    maxFiles,
  );
  await applyChanges(
    deps,
    remove.map((name) => ({ kind: "remove", path: `${dir}/${name}` })),
    signal,
  );
  for (const name of compress) await compressFile(deps, `${dir}/${name}`, signal);
  const rotated = await rename(deps, log.path, signal);
  if (rotated !== undefined) await reopen(deps, log, rotated, signal);
}

async function applyChanges({ host }: RotateDeps, changes: readonly FileChange[], signal: AbortSignal): Promise<void> {
  if (changes.length > 0) await host.fs.apply(changes, signal);
}

/** Atomically replaces the file with `FILE.gz`, keeping its mode. */
async function compressFile(deps: RotateDeps, path: string, signal: AbortSignal): Promise<void> {
  const part = `${path}.tmp`;
  const drop = () => applyChanges(deps, [{ kind: "remove", path: part }], signal).catch(() => undefined);
  const before = await ignoreNotFound(deps.host.fs.lstat(path, signal));
  if (!before) return;
  const { code, stderr } = await shell(deps, compressing, path, signal);
  if (code === exitGone) return;
  if (code !== 0) {
    await drop();
    if (code === exitCommandNotFound) return deps.onNoGzip();
    throw new CodedError(
      "unknown",
      `failed to compress log ${JSON.stringify(path)}: ${stderr.trim() || `gzip: ${code}`}`,
    );
  }
  const { mode } = before;
  await applyChanges(
    deps,
    [
      { kind: "chmod", path: part, mode: mode & 0o777 },
      { kind: "rename", from: part, to: `${path}.gz` },
      { kind: "remove", path },
    ],
    signal,
  );
}

/** @returns the log's new name; undefined if it is deferred to the next round, or gone. */
async function rename(deps: RotateDeps, path: string, signal: AbortSignal): Promise<string | undefined> {
  const { code, stdout, stderr } = await shell(deps, renaming, path, signal);
  if (code === exitGone || code === exitNameTaken) return undefined;
  if (code !== 0) throw new CodedError("unknown", `failed to rotate log ${JSON.stringify(path)}: ${stderr.trim()}`);
  return stdout.trimEnd();
}

async function reopen({ host, runtime }: RotateDeps, log: LogToRotate, rotated: string, signal: AbortSignal) {
  try {
    await runtime.reopenContainerLog(log.containerId, signal);
  } catch (error) {
    // A lost target cannot be queried now: the next round finds the log missing, and reopens it.
    if (signal.aborted) throw error;
    const begun = await ignoreNotFound(host.fs.lstat(log.path, signal));
    if (!begun) await host.fs.apply([{ kind: "rename", from: rotated, to: log.path }], signal);
    throw error;
  }
}

function shell({ host }: RotateDeps, text: string, path: string, signal: AbortSignal): Promise<RunResult> {
  return host.run(script(text, path), { timeoutMs: compressMs, signal });
}
