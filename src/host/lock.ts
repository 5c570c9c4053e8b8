import { CodedError } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { type LockHolder, startLockHolder, holderScriptLines } from "./lock-holder.ts";
import type { HolderHeartbeat } from "./holder-heartbeat.ts";
import { type Argv, script } from "../seams/command.ts";

/** A file or directory to lock. */
export interface LockRequest {
  /** Absolute path of an existing file. */
  readonly path: string;
  /** True for a shared lock; exclusive by default. */
  readonly shared?: boolean;
}

/** Locks that are held until disposed. */
export type HeldLocks = LockHolder;

/** Another process holds a lock. */
export class LockHeldError extends CodedError {
  readonly path: string;
  constructor(path: string) {
    super("failed_precondition", `${path} is locked by another agent`);
    this.path = path;
  }
}

/** Exit code of the command if another process holds the first lock; + 1 for the second, and so on. */
const conflict = 101;
/** The shell's exit code for a missing program. */
const commandNotFound = 127;

/** The command that holds locks as long as its standard input is open, and prints a line once it has acquired them: a shell
 *  opens the paths, and flock (util-linux or busybox) locks the descriptors. @param timeoutSeconds heartbeat timeout; none if
 *  absent. */
export function lockCommand(locks: readonly LockRequest[], timeoutSeconds?: number): Argv {
  const steps = locks.map(({ shared = false }, index) => {
    const fd = 8 - index;
    const path = `"$${index + 1}"`;
    // A directory can only be opened for reading; locking a file over NFS requires it to be open for writing.
    return `if [ -d ${path} ]; then exec ${fd}<${path}; else exec ${fd}<>${path}; fi
flock -n ${shared ? "-s" : "-x"} ${fd} || { code=$?; [ $code -ne 1 ] || exit ${conflict + index}; exit $code; }`;
  });
  const lines = [...steps, ...holderScriptLines(timeoutSeconds)];
  return script(lines.join("\n"), ...locks.map(({ path }) => path));
}

/** Acquires locks on the target, all or none, and holds them until disposed; they are released when this process dies. On
 *  another machine they need one process there, and are lost with the connection or with that process.
 *  @param locks at most six. @param heartbeat heartbeat, for a target that may not notice the loss of the connection. @throws
 *  LockHeldError if another process holds one, not_found if the target has no flock. */
export async function acquireLocks(
  host: Pick<Host, "spawn" | "lock">,
  locks: readonly LockRequest[],
  signal: AbortSignal,
  heartbeat?: HolderHeartbeat,
): Promise<HeldLocks> {
  if (locks.length === 0) return permanentLocks(new AsyncDisposableStack());
  if (host.lock) return lockEach(host.lock, locks, signal);
  const held = await startLockHolder(host, lockCommand(locks, heartbeat?.timeoutSeconds), signal, heartbeat);
  if (!("code" in held)) return held;
  const conflicting = locks[held.code - conflict];
  if (conflicting) throw new LockHeldError(conflicting.path);
  if (held.code === commandNotFound) throw new CodedError("not_found", "flock: no such program");
  const paths = locks.map(({ path }) => path).join(" and ");
  throw new CodedError("unknown", `cannot lock ${paths}: ${held.stderr || `flock ended with ${held.code}`}`);
}

async function lockEach(
  lock: NonNullable<Host["lock"]>,
  locks: readonly LockRequest[],
  signal: AbortSignal,
): Promise<HeldLocks> {
  await using stack = new AsyncDisposableStack();
  for (const { path, shared = false } of locks) {
    const held = await lock(path, { shared, signal });
    if (!held) throw new LockHeldError(path);
    stack.use(held);
  }
  return permanentLocks(stack.move());
}

/** Locks of this process itself, held until it releases them. */
function permanentLocks(locks: AsyncDisposableStack): HeldLocks {
  const over = Promise.withResolvers<void>();
  let isOver = false;
  return {
    hasEnded: () => isOver,
    ended: over.promise,
    isVerified: () => !isOver,
    verify: async () => undefined,
    async [Symbol.asyncDispose]() {
      await locks.disposeAsync();
      isOver = true;
      over.resolve();
    },
  };
}
