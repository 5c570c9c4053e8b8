import { CodedError } from "../lib/errors.ts";
import type { Host, HostConnections } from "../seams/host.ts";
import { type LockHolder, startLockHolder, holderScriptLines } from "./lock-holder.ts";
import type { HolderHeartbeat } from "./holder-heartbeat.ts";
import { type Argv, script } from "../seams/command.ts";
import { programText } from "../lib/program-text.ts";

/** A file or directory to lock. */
export interface LockRequest {
  /** Absolute path of an existing file. */
  readonly path: string;
  /** True for a shared lock; exclusive by default. */
  readonly shared?: boolean;
}

/** Identifies one of several processes that are told to serve the same machine, one after the other: only the latest may do so.
 *  @see https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html */
export interface FencingToken {
  /** UID of the object that is served. */
  readonly object: string;
  /** Grows with each process. */
  readonly epoch: number;
}

/** A token, and the directory on the target where tokens are recorded. */
export interface LockFence {
  readonly directory: string;
  readonly token: FencingToken;
}

/** Another process serves the machine, or is about to, with a later token. */
export class SupersededError extends CodedError {
  constructor({ epoch }: FencingToken) {
    super("failed_precondition", `another process serves this machine in a later epoch than ${epoch}`);
  }
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
/** Exit code of the command if a later token is recorded on the target. */
const superseded = 91;
/** The shell's exit code for a missing program. */
const commandNotFound = 127;

/** Sets $compares to `yes` in the shell if it can tell whether the first path, its first argument, is the file that it has locked. POSIX
 *  does not have this comparison, but dash, busybox, bash, ksh and zsh do. */
const compares = 'compares=; [ "$1" -ef /proc/$$/fd/8 ] 2>/dev/null && compares=yes';
/** Fails in the shell once that file was removed: another process can lock the one that takes its place. */
const isInPlace = '{ [ "$compares" != yes ] || [ "$1" -ef /proc/$$/fd/8 ]; }';

/** How long a holder of locks keeps them. */
interface HolderOptions {
  /** Heartbeat timeout, seconds; none if absent. */
  readonly timeoutSeconds?: number | undefined;
  readonly fence?: LockFence | undefined;
  /** The connections that are open, as `HostConnections.servers` names them: they are recorded with the epoch. */
  readonly connections?: readonly string[];
}

/** The command that holds locks as long as its standard input is open, and prints a line once it has acquired them: a shell
 *  opens the paths, and flock (util-linux or busybox) locks the descriptors. With a fence, it asks an earlier holder to release them, and
 *  releases them when a later one asks. */
export function lockCommand(
  locks: readonly LockRequest[],
  { timeoutSeconds, fence, connections = [] }: HolderOptions = {},
): Argv {
  const steps = locks.map(({ shared = false }, index) => {
    const fd = 8 - index;
    const path = `"$${index + 1}"`;
    // A directory can only be opened for reading; locking a file over NFS requires it to be open for writing.
    return `if [ -d ${path} ]; then exec ${fd}<${path}; else exec ${fd}<>${path}; fi
flock -n ${shared ? "-s" : "-x"} ${fd} || { code=$?; [ $code -ne 1 ] || { ${fence ? "claim; " : ""}exit ${conflict + index}; }; exit $code; }`;
  });
  const paths = locks.map(({ path }) => path);
  if (!fence) return script([...steps, compares, ...holderScriptLines(timeoutSeconds, isInPlace)].join("\n"), ...paths);
  const serving = timeoutSeconds === undefined ? [] : ["if command -v timeout >/dev/null; then serve; fi"];
  const values = { timeout: String(timeoutSeconds ?? 0), connections: connections.join("\n"), lock: paths[0] ?? "" };
  return fenceScript([...steps, compares, "take", "echo held", ...serving, "exec cat"], fence, values, paths);
}

/** A script with the functions of lock-fence.sh. @param values of further variables. @param args its arguments. */
function fenceScript(
  steps: readonly string[],
  { directory, token: { object, epoch } }: LockFence,
  values: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): Argv {
  const variables = Object.entries({ fence: directory, object, epoch: String(epoch), ...values });
  const assignments = variables.map(([name], index) => `${name}=\${${args.length + index + 1}}`);
  const functions = ["src/host/serving-process.sh", "src/host/lock-fence.sh"].map(programText);
  return script(
    [assignments.join(" "), ...functions, ...steps].join("\n"),
    ...args,
    ...variables.map(([, value]) => value),
  );
}

/** The command that records a further connection of a process that holds locks with this fence. It ends with 91 if a later process does.
 *  @param server as `HostConnections` names it. */
export function furtherConnectionCommand(fence: LockFence, server: string): Argv {
  return fenceScript(["add_connection"], fence, { server });
}

/** Acquires locks on the target, all or none, and holds them until disposed; they are released when this process dies. On
 *  another machine they need one process there, and are lost with the connection or with that process.
 *  @param locks at most six. @param heartbeat heartbeat, for a target that may not notice the loss of the connection. @param fence for a
 *  remote target that other processes may be told to serve after this one. @throws LockHeldError if another process holds one,
 *  SupersededError, not_found if the target has no flock. */
export async function acquireLocks(
  host: Pick<Host, "spawn" | "lock" | "connections">,
  locks: readonly LockRequest[],
  signal: AbortSignal,
  heartbeat?: HolderHeartbeat,
  fence?: LockFence,
): Promise<HeldLocks> {
  if (locks.length === 0) return permanentLocks(new AsyncDisposableStack());
  if (host.lock) return lockEach(host.lock, locks, signal);
  const known = fence && host.connections ? host.connections.servers() : [];
  const command = lockCommand(locks, { timeoutSeconds: heartbeat?.timeoutSeconds, fence, connections: known });
  const held = await startLockHolder(host, command, signal, heartbeat);
  if (!("code" in held)) {
    if (fence && host.connections) await recordFurther(host.connections, known, { held, fence, signal });
    return held;
  }
  if (fence && held.code === superseded) throw new SupersededError(fence.token);
  const conflicting = locks[held.code - conflict];
  if (conflicting) throw new LockHeldError(conflicting.path);
  if (held.code === commandNotFound) throw new CodedError("not_found", "flock: no such program");
  const paths = locks.map(({ path }) => path).join(" and ");
  throw new CodedError("unknown", `cannot lock ${paths}: ${held.stderr || `flock ended with ${held.code}`}`);
}

/** Has further connections recorded on the target for as long as the locks are held, so that a later holder ends them, too.
 *  @param known those that are recorded. */
async function recordFurther(
  connections: HostConnections,
  known: readonly string[],
  { held, fence, signal }: { readonly held: HeldLocks; readonly fence: LockFence; readonly signal: AbortSignal },
): Promise<void> {
  try {
    const stop = await connections.onFurther(known, (server) => furtherConnectionCommand(fence, server), signal);
    void held.ended.then(stop);
  } catch (error) {
    await held[Symbol.asyncDispose]();
    throw error;
  }
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
