import { CodedError } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { type Held, hold, stayingLines } from "./held.ts";
import type { Pulse } from "./pulse.ts";
import { type Argv, script } from "../seams/command.ts";

/** A file to lock, or a directory, which is locked without a file in it. */
export interface LockRequest {
  /** Absolute path of an existing file. */
  readonly path: string;
  /** A shared lock; an exclusive one otherwise. */
  readonly shared?: boolean;
}

/** Locks that are held until disposed of. */
export type HeldLocks = Held;

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
export function lockCommand(locks: readonly LockRequest[], silenceSeconds?: number): Argv {
  const steps = locks.map(({ shared = false }, index) => {
    const fd = 8 - index;
    const path = `"$${index + 1}"`;
    // A directory can only be opened for reading; a lock on a file over NFS needs it open for writing.
    return `if [ -d ${path} ]; then exec ${fd}<${path}; else exec ${fd}<>${path}; fi
flock -n ${shared ? "-s" : "-x"} ${fd} || { code=$?; [ $code -ne 1 ] || exit ${conflict + index}; exit $code; }`;
  });
  const lines = [...steps, ...stayingLines(silenceSeconds)];
  return script(lines.join("\n"), ...locks.map(({ path }) => path));
}

/** Holds locks on the target until disposed of, all or none; they are released when this process dies. On another machine they cost one
 *  process there, and are lost with the connection to it, and with that process.
 *  @param locks six at most.
 *  @param pulse for a target that may not notice the loss of the connection.
 *  @throws LockTaken when another process holds one, not_found where the target has no flock. */
export async function acquireLocks(
  host: Pick<Host, "spawn" | "lock">,
  locks: readonly LockRequest[],
  signal: AbortSignal,
  pulse?: Pulse,
): Promise<HeldLocks> {
  if (locks.length === 0) return unbreakable(new AsyncDisposableStack());
  if (host.lock) return lockEach(host.lock, locks, signal);
  const held = await hold(host, lockCommand(locks, pulse?.silenceSeconds), signal, pulse);
  if (!("code" in held)) return held;
  const taken = locks[held.code - conflict];
  if (taken) throw new LockTaken(taken.path);
  if (held.code === noProgram) throw new CodedError("not_found", "flock: no such program");
  const paths = locks.map(({ path }) => path).join(" and ");
  throw new CodedError("unknown", `${paths} cannot be locked: ${held.said || `flock ended with ${held.code}`}`);
}

async function lockEach(
  lock: NonNullable<Host["lock"]>,
  locks: readonly LockRequest[],
  signal: AbortSignal,
): Promise<HeldLocks> {
  await using stack = new AsyncDisposableStack();
  for (const { path, shared = false } of locks) {
    const held = await lock(path, { shared, signal });
    if (!held) throw new LockTaken(path);
    stack.use(held);
  }
  return unbreakable(stack.move());
}

/** Locks of this process's own: it has them until it gives them up. */
function unbreakable(locks: AsyncDisposableStack): HeldLocks {
  const over = Promise.withResolvers<void>();
  let isOver = false;
  return {
    isOver: () => isOver,
    over: over.promise,
    isProved: () => !isOver,
    prove: async () => undefined,
    async [Symbol.asyncDispose]() {
      await locks.disposeAsync();
      isOver = true;
      over.resolve();
    },
  };
}
