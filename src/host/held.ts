import { CodedError, throwIfAborted } from "../lib/errors.ts";
import { onAbort, untilAborted } from "../lib/service-group.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import { type Pulse, createProof } from "./pulse.ts";
import type { Argv } from "../seams/command.ts";

/** A command on the target that holds something until it is disposed of. */
export interface Held extends AsyncDisposable {
  /** True once it has ended: by itself, with the connection to the target, or killed since it answered no heartbeat. */
  isOver(): boolean;
  /** Resolves when it has. */
  readonly over: Promise<void>;
  /** False while the command may have ended without our knowledge: no heartbeat that it answered is recent enough, as after a time in
   *  which this process stood still. Without heartbeats true until the command has ended. */
  isProved(): boolean;
  /** Resolves once the command has shown that it still holds; asks it at once where that is not known.
   *  @throws unavailable when it has ended; the signal's reason. */
  prove(signal?: AbortSignal): Promise<void>;
}

/** Why a command did not stay: its exit code, and the beginning of what it said on standard error. */
export interface Ended {
  readonly code: number;
  readonly said: string;
}

/** Lines of a shell script that say on standard output that something is held, return each heartbeat there, and last as long as standard
 *  input is open.
 *  @param silenceSeconds longest silence on standard input; unlimited when absent. */
export function stayingLines(silenceSeconds?: number): readonly string[] {
  return ["echo held", ...(silenceSeconds === undefined ? [] : [listening(silenceSeconds)]), "exec cat"];
}

/** Ends the holder without a heartbeat in time, or at the end of its standard input. Its helpers do not inherit the descriptors that may be
 *  locked, since they outlive it if it is killed. */
function listening(silenceSeconds: number): string {
  return `if command -v timeout >/dev/null; then
  while [ "$(timeout ${silenceSeconds} dd bs=1 count=1 2>/dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-)" = . ]; do printf .; done
  exit
fi`;
}

/** Runs a command that ends with `stayingLines`, up to where it says that it holds. It ends when it is disposed of, when this process
 *  dies or when the connection to the target is lost, and costs one process there.
 *  @param signal gives up waiting for the command to hold; it has no effect on a command that holds.
 *  @returns how it ended where it did before that. @throws as `Host.spawn` does; the signal's reason. */
export async function hold(
  host: Pick<Host, "spawn">,
  argv: Argv,
  signal: AbortSignal,
  pulse?: Pulse,
): Promise<Held | Ended> {
  // The command's patience begins later, so this is on the safe side.
  const proof = pulse && createProof(pulse);
  using starting = abortedUntilDisposed(signal);
  const holder = await host.spawn(argv, starting.signal);
  // The end of the command is reported by `exited`.
  for (const stream of [holder.stdin, holder.stdout, holder.stderr]) stream.on("error", () => undefined);
  const complaint = collect(holder);
  const code = await untilAborted(Promise.race([firstWord(holder), holder.exited]), signal);
  if (code !== undefined) {
    throwIfAborted(signal);
    return { code, said: complaint() };
  }
  const ended = new AbortController();
  const end = () => {
    if (!ended.signal.aborted)
      ended.abort(new CodedError("unavailable", "the command that holds the lock on the target has ended"));
  };
  proof?.begin(holder, ended.signal, () => {
    holder.kill("SIGKILL");
    end();
  });
  const over = onAbort(ended.signal);
  holder.exited.then(end, end);
  const dispose = () => {
    // The holder ends at the end of its input; killing it may take longer, since that takes another command on the target.
    holder.stdin.end();
    return holder[Symbol.asyncDispose]();
  };
  return {
    isOver: () => ended.signal.aborted,
    over,
    isProved: () => !ended.signal.aborted && (proof?.isFresh() ?? true),
    async prove(until) {
      throwIfAborted(ended.signal);
      await proof?.renew(until ? AbortSignal.any([ended.signal, until]) : ended.signal);
    },
    [Symbol.asyncDispose]: dispose,
  };
}

/** A signal that follows another one until it is disposed of. A signal made by `AbortSignal.any` would follow it for good. */
function abortedUntilDisposed(signal: AbortSignal): Disposable & { readonly signal: AbortSignal } {
  const own = new AbortController();
  const follow = () => own.abort(signal.reason);
  if (signal.aborted) follow();
  else signal.addEventListener("abort", follow, { once: true });
  return { signal: own.signal, [Symbol.dispose]: () => signal.removeEventListener("abort", follow) };
}

/** Resolves once the holder says that it holds. */
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
