import * as fsp from "node:fs/promises";
import { readFile, type FileHandle, constants, open } from "node:fs/promises";
import { join } from "node:path";
import { spawn } from "node:child_process";
import type { Clock } from "../../src/lib/clock.ts";
import { createTargetBudget } from "../../src/lib/target-budget.ts";
import type { Host } from "../../src/seams/host.ts";
import { dialLocal, listenLocal } from "./dial.ts";
import type { RunLocally } from "./changes.ts";
import { localFs } from "./fs.ts";
import { createHelperShell } from "./helper-shell.ts";
import { nsenterFromPod } from "./in-pod.ts";
import { runLocal, spawnLocal } from "./run.ts";
import { codedError, hasErrno } from "./errors.ts";
import { CodedError, abortError, messageOf } from "../../src/lib/errors.ts";

export interface LocalHostDeps {
  readonly clock: Clock;
  /** Set if graftlet runs in a Pod of the machine, which has the machine's files at the same paths: the PID, as seen in the Pod,
   *  of a process in the machine's mount namespace. */
  readonly machinePid?: number;
}

/** The machine that graftlet runs on, as a Host. */
export function localHost({ clock, machinePid }: LocalHostDeps): Host {
  const onMachine = machinePid === undefined ? async (argv: readonly string[]) => argv : nsenterFromPod(machinePid);
  const root = machinePid === undefined ? "" : `/proc/${machinePid}/root`;
  const helper = createHelperShell({ clock, startShell: async () => spawnLocal(await onMachine(["sh"])) });
  const run: RunLocally = async (argv, options = {}) =>
    options.brief ? helper.run(argv, options) : runLocal(clock, await onMachine(argv), options);
  return {
    fs: localFs(run),
    budget: createTargetBudget({ clock }),
    clock: {
      offsetMs: () => Promise.resolve(0),
      bootId: async () => (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim(),
    },
    run,
    spawn: async (argv, signal) => spawnLocal(await onMachine(argv), signal),
    lock: (path, options) => lockLocal(`${root}${path}`, onMachine, options),
    dial: dialLocal,
    listen: listenLocal,
    watch: watchLocal,
    [Symbol.asyncDispose]: () => helper[Symbol.asyncDispose](),
  };
}

/** Watches a path on this machine. @see Host.watch */
async function* watchLocal(path: string, signal: AbortSignal): AsyncGenerator<string> {
  try {
    for await (const { filename } of fsp.watch(path, { signal, persistent: false }))
      yield filename ? join(path, filename) : path;
  } catch (error) {
    if (!signal.aborted) throw codedError(path, error);
  }
}

/** Exit code of flock (util-linux and busybox) when another process holds the lock. */
const lockedExitCode = 1;

/** Locks a file or directory of this machine. The lock belongs to a file descriptor of this process, which the flock program
 *  inherits for the call: this process holds the lock while it has the descriptor open, without a helper process.
 *  @param onMachine wraps a command so that it runs on the machine. @see Host.lock
 *  @see https://man7.org/linux/man-pages/man2/flock.2.html */
async function lockLocal(
  path: string,
  onMachine: (argv: readonly string[]) => Promise<readonly string[]>,
  { shared, signal }: { readonly shared: boolean; readonly signal: AbortSignal },
): Promise<AsyncDisposable | undefined> {
  const file = await openForLock(path);
  try {
    const argv = await onMachine(["flock", "-n", shared ? "-s" : "-x", String(descriptor)]);
    const { code, output } = await runWith(file, argv, signal);
    if (code === 0) return { [Symbol.asyncDispose]: () => file.close() };
    if (code !== lockedExitCode) throw new CodedError("unknown", output || `flock ended with ${code}`);
  } catch (error) {
    await file.close();
    throw error;
  }
  await file.close();
  return undefined;
}

/** Opens a directory, or a file, which is created if it is missing. */
async function openForLock(path: string): Promise<FileHandle> {
  try {
    // Locking a file on NFS requires that it is open for writing.
    return await open(path, constants.O_RDWR | constants.O_CREAT, 0o600).catch((error: unknown) => {
      if (!hasErrno(error, "EISDIR")) throw error;
      return open(path, "r");
    });
  } catch (error) {
    throw new CodedError("failed_precondition", messageOf(error), { cause: error });
  }
}

/** Number of the file descriptor in the flock program. */
const descriptor = 3;

/** Runs a command that inherits the file. @returns its exit code, and the start of its standard error. */
function runWith(
  file: FileHandle,
  [program = "", ...rest]: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly code: number | null; readonly output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, rest, { stdio: ["ignore", "ignore", "pipe", file.fd], signal, killSignal: "SIGKILL" });
    let output = "";
    child.stderr
      ?.on("data", (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(0, 200);
      })
      .on("error", () => undefined);
    child.once("error", (error) => reject(signal.aborted ? abortError(signal) : codedError(program, error)));
    child.once("close", (code) => resolve({ code, output: output.trim() }));
  });
}
