import { posix } from "node:path";
import { CodedError, unlessGone } from "../lib/errors.ts";
import type { FileChange, Host, RunResult } from "../seams/host.ts";
import type { Containers } from "../seams/runtime.ts";
import { planRotation } from "./rotated-files.ts";
import { script } from "../seams/command.ts";

/** Timeout of a compression, milliseconds: a log may have become large while nobody looked after it. */
const compressMs = 600_000;

/** Exit codes of the commands below. */
const isGone = 4;
const isTaken = 5;
const noProgram = 127;

/** Compresses `$1` into a new file beside it, which has the time of its last line: followers tell by that what comes next. */
const compressing = `
[ -f "$1" ] && [ ! -h "$1" ] || exit ${isGone}
set -C
umask 077
gzip -c <"$1" >"$1.tmp" || exit
touch -r "$1" -- "$1.tmp"`;

/** Gives the log `$1` the name of a rotated one, by the machine's local time, and prints that. It replaces no other. */
const renaming = `
[ -f "$1" ] && [ ! -h "$1" ] || exit ${isGone}
rotated=$1.$(date +%Y%m%d-%H%M%S) || exit
[ ! -e "$rotated" ] && [ ! -e "$rotated.gz" ] || exit ${isTaken}
mv -- "$1" "$rotated" && echo "$rotated"`;

export interface RotateDeps {
  readonly host: Pick<Host, "run"> & { readonly fs: Pick<Host["fs"], "list" | "lstat" | "lstatAll" | "apply"> };
  readonly runtime: Pick<Containers, "reopenContainerLog">;
  /** Number of files that one container's log may have, the current one included. */
  readonly maxFiles: number;
  /** The target has no gzip: rotated logs stay as they are. */
  readonly onNoGzip: () => void;
}

/** A container's log. */
export interface RotatedLog {
  readonly containerId: string;
  /** Absolute path on the target. */
  readonly path: string;
}

/** Rotates one log as the kubelet does: removes what rotations left that were cut short, and files beyond the limit; compresses
 *  the rotated ones; renames the log and has the runtime begin a new one. The rename is undone when the runtime fails to. A
 *  second rotation in the same second is left to the next round. Nothing happens to a log that is gone, or is no file.
 *  @throws CodedError what the target or the runtime failed with.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation */
export async function rotateLog(deps: RotateDeps, log: RotatedLog, signal: AbortSignal): Promise<void> {
  const { host, maxFiles } = deps;
  const { dir, base } = posix.parse(log.path);
  const entries = (await unlessGone(host.fs.list(dir, signal))) ?? [];
  const names = entries.filter(({ name, kind }) => kind === "file" && name.startsWith(`${base}.`));
  const { remove, compress } = planRotation(
    names.map(({ name }) => name),
    maxFiles,
  );
  await change(
    deps,
    remove.map((name) => ({ do: "remove", path: `${dir}/${name}` })),
    signal,
  );
  for (const name of compress) await compressFile(deps, `${dir}/${name}`, signal);
  const rotated = await rename(deps, log.path, signal);
  if (rotated !== undefined) await reopen(deps, log, rotated, signal);
}

async function change({ host }: RotateDeps, changes: readonly FileChange[], signal: AbortSignal): Promise<void> {
  if (changes.length > 0) await host.fs.apply(changes, signal);
}

/** Puts `FILE.gz` with the file's own mode in the file's place, at no moment less than a whole one. */
async function compressFile(deps: RotateDeps, path: string, signal: AbortSignal): Promise<void> {
  const part = `${path}.tmp`;
  const drop = () => change(deps, [{ do: "remove", path: part }], signal).catch(() => undefined);
  const before = await unlessGone(deps.host.fs.lstat(path, signal));
  if (!before) return;
  const { code, stderr } = await shell(deps, compressing, path, signal);
  if (code === isGone) return;
  if (code !== 0) {
    await drop();
    if (code === noProgram) return deps.onNoGzip();
    throw new CodedError(
      "unknown",
      `failed to compress log ${JSON.stringify(path)}: ${stderr.trim() || `gzip: ${code}`}`,
    );
  }
  const { mode } = before;
  await change(
    deps,
    [
      { do: "chmod", path: part, mode: mode & 0o777 },
      { do: "rename", from: part, to: `${path}.gz` },
      { do: "remove", path },
    ],
    signal,
  );
}

/** @returns the name that the log has now; undefined when it is left to the next round, or gone. */
async function rename(deps: RotateDeps, path: string, signal: AbortSignal): Promise<string | undefined> {
  const { code, stdout, stderr } = await shell(deps, renaming, path, signal);
  if (code === isGone || code === isTaken) return undefined;
  if (code !== 0) throw new CodedError("unknown", `failed to rotate log ${JSON.stringify(path)}: ${stderr.trim()}`);
  return stdout.trimEnd();
}

async function reopen({ host, runtime }: RotateDeps, log: RotatedLog, rotated: string, signal: AbortSignal) {
  try {
    await runtime.reopenContainerLog(log.containerId, signal);
  } catch (error) {
    // A target that is lost cannot be asked now: the next round finds the log missing, and has it reopened.
    if (signal.aborted) throw error;
    const begun = await unlessGone(host.fs.lstat(log.path, signal));
    if (!begun) await host.fs.apply([{ do: "rename", from: rotated, to: log.path }], signal);
    throw error;
  }
}

function shell({ host }: RotateDeps, text: string, path: string, signal: AbortSignal): Promise<RunResult> {
  return host.run(script(text, path), { timeoutMs: compressMs, signal });
}
