import type { Clock } from "../lib/clock.ts";
import { CodedError, throwIfAborted } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Host, HostProcess } from "../seams/host.ts";

/** A file to lock, or a directory, which is locked without a file in it. */
export interface LockRequest {
  /** Absolute path of an existing file. */
  readonly path: string;
  /** A shared lock; an exclusive one otherwise. */
  readonly shared?: boolean;
}

/** Heartbeat to the holder of locks: a connection may be lost without notice. */
export interface Pulse {
  readonly clock: Pick<Clock, "after">;
  readonly everyMs: number;
  /** The locks are released after this many seconds without a heartbeat, on targets that have `timeout`. */
  readonly silenceSeconds: number;
}

/** Locks that are held until disposed of. */
export interface HeldLocks extends AsyncDisposable {
  /** True once the locks are released, or lost with the connection to the target. */
  isOver(): boolean;
}

/** Another process holds a lock. */
export class LockTaken extends CodedError {
  readonly path: string;
  constructor(path: string) {
    super("failed_precondition", `${path} is locked by another agent`);
    this.path = path;
  }
}

/** Exit codes of the command when another process holds the first lock, the second, … */
const conflict = 101;
/** A shell's exit code for a missing program. */
const noProgram = 127;

/** The command that holds locks as long as its standard input is open and prints a line once it has them: a shell that opens the
 *  paths, and flock, util-linux's or busybox's, that locks the descriptors.
 *  @param silenceSeconds longest silence on its standard input; unlimited when absent. */
export function lockCommand(locks: readonly LockRequest[], silenceSeconds?: number): readonly string[] {
  const steps = locks.map(({ shared = false }, index) => {
    const fd = 8 - index;
    const path = `"$${index + 1}"`;
    // A directory can only be opened for reading; a lock on a file over NFS needs it open for writing.
    return `if [ -d ${path} ]; then exec ${fd}<${path}; else exec ${fd}<>${path}; fi
flock -n ${shared ? "-s" : "-x"} ${fd} || { code=$?; [ $code -ne 1 ] || exit ${conflict + index}; exit $code; }`;
  });
  const script = [
    ...steps,
    "echo held",
    ...(silenceSeconds === undefined ? [] : [listening(silenceSeconds)]),
    "exec cat",
  ];
  return ["sh", "-c", script.join("\n"), "sh", ...locks.map(({ path }) => path)];
}

/** Ends the holder without a heartbeat in time, or at the end of its standard input. */
function listening(silenceSeconds: number): string {
  return `if command -v timeout >/dev/null; then
  while [ "$(timeout ${silenceSeconds} dd bs=1 count=1 2>/dev/null)" = . ]; do :; done
  exit
fi`;
}

/** Holds locks on the target until disposed of, all or none; they are released when this process dies or the connection to the
 *  target is lost. They cost one process there.
 *  @param locks six at most.
 *  @param pulse for a target that may not notice the loss of the connection.
 *  @throws LockTaken when another process holds one, not_found where the target has no flock. */
export async function acquireLocks(
  host: Pick<Host, "spawn">,
  locks: readonly LockRequest[],
  signal: AbortSignal,
  pulse?: Pulse,
): Promise<HeldLocks> {
  if (locks.length === 0) return { isOver: () => false, [Symbol.asyncDispose]: async () => undefined };
  const holder = await host.spawn(lockCommand(locks, pulse?.silenceSeconds), signal);
  const complaint = collect(holder);
  const ended = await untilAborted(Promise.race([firstWord(holder), holder.exited]), signal);
  if (ended === undefined) {
    let over = false;
    const beating = pulse && beat(holder, pulse);
    const end = () => {
      over = true;
      beating?.();
    };
    holder.exited.then(end, end);
    const dispose = () => {
      // The holder ends at the end of its input; killing it may take longer, since that takes another command on the target.
      holder.stdin.end();
      return holder[Symbol.asyncDispose]();
    };
    return { isOver: () => over, [Symbol.asyncDispose]: dispose };
  }
  throwIfAborted(signal);
  const taken = locks[ended - conflict];
  if (taken) throw new LockTaken(taken.path);
  if (ended === noProgram) throw new CodedError("not_found", "flock: no such program");
  const paths = locks.map(({ path }) => path).join(" and ");
  throw new CodedError("unknown", `${paths} cannot be locked: ${complaint() || `flock ended with ${ended}`}`);
}

/** Sends heartbeats. @returns a function that stops them. */
function beat({ stdin }: HostProcess, { clock, everyMs }: Pulse): () => void {
  const next = () => {
    stdin.write(".");
    timer = clock.after(everyMs, next);
  };
  // The holder's exit is reported by `exited`.
  stdin.on("error", () => undefined);
  let timer = clock.after(everyMs, next);
  return () => timer.cancel();
}

/** Resolves once the holder reports that it has the locks. */
function firstWord({ stdout }: HostProcess): Promise<undefined> {
  return new Promise((resolve) => stdout.once("data", () => resolve(undefined)));
}

function collect({ stderr }: HostProcess): () => string {
  let said = "";
  stderr.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(0, 200);
  });
  return () => said.trim();
}
