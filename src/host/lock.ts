import { CodedError, throwIfAborted } from "../lib/errors.ts";
import type { Host, HostProcess } from "../seams/host.ts";

/** What is locked: a file, or a directory, in which nothing is left then. */
export interface LockRequest {
  /** Absolute, and there. */
  readonly path: string;
  /** Others may hold it too, as long as they share it; only one may otherwise. */
  readonly shared?: boolean;
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
 *  and of which flock, util-linux's or busybox's, locks what is open. */
export function lockCommand(locks: readonly LockRequest[]): readonly string[] {
  const steps = locks.map(({ shared = false }, index) => {
    const fd = 8 - index;
    const path = `"$${index + 1}"`;
    // A directory can only be read; a lock on a file over NFS wants it open for writing.
    return `if [ -d ${path} ]; then exec ${fd}<${path}; else exec ${fd}<>${path}; fi
flock -n ${shared ? "-s" : "-x"} ${fd} || { code=$?; [ $code -ne 1 ] || exit ${conflict + index}; exit $code; }`;
  });
  return ["sh", "-c", [...steps, "echo held", "exec cat"].join("\n"), "sh", ...locks.map(({ path }) => path)];
}

/** Holds locks on the target until disposed of, all or none of them; they die with this process, or with the connection to the
 *  target. They cost one process there. @param locks six at most.
 *  @throws LockTaken when somebody else holds one, not_found where the target has no flock. */
export async function acquireLocks(
  host: Pick<Host, "spawn">,
  locks: readonly LockRequest[],
  signal: AbortSignal,
): Promise<HeldLocks> {
  if (locks.length === 0) return { isOver: () => false, [Symbol.asyncDispose]: async () => undefined };
  const holder = await host.spawn(lockCommand(locks), signal);
  const complaint = collect(holder);
  const ended = await Promise.race([firstWord(holder), holder.exited]);
  if (ended === undefined) {
    let over = false;
    const end = () => void (over = true);
    holder.exited.then(end, end);
    return { isOver: () => over, [Symbol.asyncDispose]: () => holder[Symbol.asyncDispose]() };
  }
  throwIfAborted(signal);
  const taken = locks[ended - conflict];
  if (taken) throw new LockTaken(taken.path);
  if (ended === noProgram) throw new CodedError("not_found", "flock: no such program");
  const paths = locks.map(({ path }) => path).join(" and ");
  throw new CodedError("unknown", `${paths} cannot be locked: ${complaint() || `flock ended with ${ended}`}`);
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
