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

/** Exit codes of flock when somebody else has the first lock, the second, … */
const conflict = 101;

/** Holds locks on the target until disposed of, all or none of them; they die with this process, or with the connection to the
 *  target. They cost one process there.
 *  @throws LockTaken when somebody else holds one, not_found where the target has no flock. */
export async function acquireLocks(
  host: Pick<Host, "spawn">,
  locks: readonly LockRequest[],
  signal: AbortSignal,
): Promise<HeldLocks> {
  if (locks.length === 0) return { isOver: () => false, [Symbol.asyncDispose]: async () => undefined };
  // Each flock becomes the next, which inherits what is open. The last keeps the locks while its standard input is open.
  const flocks = locks.flatMap(({ path, shared = false }, index) => [
    "flock",
    "--nonblock",
    "--no-fork",
    shared ? "--shared" : "--exclusive",
    `--conflict-exit-code=${conflict + index}`,
    path,
  ]);
  const holder = await host.spawn([...flocks, "sh", "-c", "echo held; exec cat"], signal);
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
