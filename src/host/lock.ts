import type { Clock } from "../lib/clock.ts";
import { CodedError, throwIfAborted } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Host, HostProcess } from "../seams/host.ts";

/** What is locked: a file, or a directory, in which nothing is left then. */
export interface LockRequest {
  /** Absolute, and there. */
  readonly path: string;
  /** Others may hold it too, as long as they share it; only one may otherwise. */
  readonly shared?: boolean;
}

/** How the holder of locks is told that this process is alive, for a connection may be gone without a word. */
export interface Pulse {
  readonly clock: Pick<Clock, "after">;
  readonly everyMs: number;
  /** After so many seconds without a sign the locks are given up, where the target has `timeout` to count them. */
  readonly silenceSeconds: number;
}

/** Locks that are held until disposed of. */
export interface HeldLocks extends AsyncDisposable {
  /** They are held no longer: disposed of, or lost with the connection to the target. */
  isOver(): boolean;
}

/** Somebody else has a lock. */
export class LockTaken extends CodedError {
  readonly path: string;
  constructor(path: string) {
    super("failed_precondition", `${path} is locked by another agent`);
    this.path = path;
  }
}

/** Exit codes of the command when somebody else has the first lock, the second, … */
const conflict = 101;
/** What a shell ends with where there is no such program. */
const noProgram = 127;

/** The command that holds locks as long as its standard input is open, and says so in a line: a shell that opens what is locked,
 *  and of which flock, util-linux's or busybox's, locks what is open.
 *  @param silenceSeconds how long its standard input may say nothing; for ever unless given. */
export function lockCommand(locks: readonly LockRequest[], silenceSeconds?: number): readonly string[] {
  const steps = locks.map(({ shared = false }, index) => {
    const fd = 8 - index;
    const path = `"$${index + 1}"`;
    // A directory can only be read; a lock on a file over NFS wants it open for writing.
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

/** Ends the holder when it hears no sign in time, or its standard input ends. */
function listening(silenceSeconds: number): string {
  return `if command -v timeout >/dev/null; then
  while [ "$(timeout ${silenceSeconds} dd bs=1 count=1 2>/dev/null)" = . ]; do :; done
  exit
fi`;
}

/** Holds locks on the target until disposed of, all or none of them; they die with this process, or with the connection to the
 *  target. They cost one process there. @param locks six at most.
 *  @param pulse for a target whose connection may be gone while it does not know.
 *  @throws LockTaken when somebody else holds one, not_found where the target has no flock. */
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
      // It ends with what it reads; to kill it may take longer, for that takes another command on the target.
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

/** Gives a sign now and then. @returns what ends that. */
function beat({ stdin }: HostProcess, { clock, everyMs }: Pulse): () => void {
  const next = () => {
    stdin.write(".");
    timer = clock.after(everyMs, next);
  };
  // That the holder has ended is told by its end.
  stdin.on("error", () => undefined);
  let timer = clock.after(everyMs, next);
  return () => timer.cancel();
}

/** Resolves once the holder has said that it has the locks. */
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
