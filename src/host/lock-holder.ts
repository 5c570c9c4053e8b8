import { CodedError, throwIfAborted } from "../lib/errors.ts";
import { onAbort, untilAborted, forwardedAbort } from "../lib/runnables.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import { type HolderHeartbeat, createHolderLease } from "./holder-heartbeat.ts";
import type { Argv } from "../seams/command.ts";

/** A process on the target that holds something, such as a lock, until it is disposed. */
export interface LockHolder extends AsyncDisposable {
  /** True once the process has ended: by itself, with the connection to the target, or because it was killed after missed heartbeats. */
  hasEnded(): boolean;
  /** Resolves when the process has ended. */
  readonly ended: Promise<void>;
  /** True while the lease is valid. False if the holder may have ended unnoticed, because no recent heartbeat was answered, for example
   *  after this process was suspended. Without heartbeats, true until the holder has ended. */
  isVerified(): boolean;
  /** Resolves once the lease is valid; sends a heartbeat at once if it is not. @throws unavailable if the holder has ended;
   *  the signal's reason. */
  verify(signal?: AbortSignal): Promise<void>;
}

/** Why a holder exited early: its exit code and the beginning of its standard error. */
export interface HolderExit {
  readonly code: number;
  readonly stderr: string;
}

/** Lines of a shell script that print a line once the lock is held, echo each heartbeat, and run as long as standard input is
 *  open. @param timeoutSeconds heartbeat timeout; none if absent. @param condition a command that is run after each heartbeat, and must
 *  succeed. */
export function holderScriptLines(timeoutSeconds?: number, condition = "true"): readonly string[] {
  const loop = timeoutSeconds === undefined ? [] : [heartbeatLoop(timeoutSeconds, condition)];
  return ["echo held", ...loop, "exec cat"];
}

/** Ends the holder when a heartbeat is missed, at the end of its standard input, or when the condition fails. Its child processes do not
 *  inherit the descriptors that may be locked, since they outlive the holder if it is killed. */
function heartbeatLoop(timeoutSeconds: number, condition: string): string {
  return `if command -v timeout >/dev/null; then
  while [ "$(timeout ${timeoutSeconds} dd bs=1 count=1 2>/dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-)" = . ] && ${condition}; do printf .; done
  exit
fi`;
}

/** Starts a command that ends with `holderScriptLines`, and waits until it holds the lock. The holder ends when it is
 *  disposed, when this process dies or when the connection to the target is lost; it takes one process on the target. @param
 *  signal limits the wait for the lock; has no effect once it is held. @returns the exit of a command that ended before.
 *  @throws as `Host.spawn` does; the signal's reason. */
export async function startLockHolder(
  host: Pick<Host, "spawn">,
  argv: Argv,
  signal: AbortSignal,
  heartbeat?: HolderHeartbeat,
): Promise<LockHolder | HolderExit> {
  // The command's own timeout starts later, so this is on the safe side.
  const lease = heartbeat && createHolderLease(heartbeat);
  using starting = forwardedAbort(signal);
  const holder = await host.spawn(argv, starting.signal);
  // The end of the command is reported by `exited`.
  for (const stream of [holder.stdin, holder.stdout, holder.stderr]) stream.on("error", () => undefined);
  const stderrText = collectStderr(holder);
  const code = await untilAborted(Promise.race([firstOutput(holder), holder.exited]), signal);
  if (code !== undefined) {
    throwIfAborted(signal);
    return { code, stderr: stderrText() };
  }
  const ended = new AbortController();
  const end = () => {
    if (!ended.signal.aborted) ended.abort(new CodedError("unavailable", "the lock holder on the target has ended"));
  };
  lease?.start(holder, ended.signal, () => {
    holder.kill("SIGKILL");
    end();
  });
  const over = onAbort(ended.signal);
  holder.exited.then(end, end);
  const dispose = () => {
    // The holder ends at the end of its input; killing it may take longer, since that needs another command on the target.
    holder.stdin.end();
    return holder[Symbol.asyncDispose]();
  };
  return {
    hasEnded: () => ended.signal.aborted,
    ended: over,
    isVerified: () => !ended.signal.aborted && (lease?.isValid() ?? true),
    async verify(until) {
      throwIfAborted(ended.signal);
      await lease?.renew(until ? AbortSignal.any([ended.signal, until]) : ended.signal);
    },
    [Symbol.asyncDispose]: dispose,
  };
}

/** Resolves once the holder has printed its first line. */
function firstOutput({ stdout }: HostProcess): Promise<undefined> {
  return new Promise((resolve) => stdout.once("data", () => resolve(undefined)));
}

function collectStderr({ stderr }: HostProcess): () => string {
  let text = "";
  stderr.on("data", (chunk: Buffer) => {
    text = (text + chunk.toString()).slice(0, 200);
  });
  return () => text.trim();
}
