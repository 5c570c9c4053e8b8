import type { Clock } from "../lib/clock.ts";
import { throwIfAborted } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import type { Argv } from "../seams/command.ts";

/** Heartbeat to a command that stays: a connection may be lost without notice. */
export interface Pulse {
  readonly clock: Pick<Clock, "after">;
  readonly everyMs: number;
  /** The command ends after this many seconds without a heartbeat, on targets that have `timeout`. */
  readonly silenceSeconds: number;
}

/** The heartbeat to a target on another machine, whose sshd may believe in a dead connection for hours. */
export const remotePulse = { everyMs: 15_000, silenceSeconds: 60 };

/** A command on the target that holds something until it is disposed of. */
export interface Held extends AsyncDisposable {
  /** True once it has ended, by itself or with the connection to the target. */
  isOver(): boolean;
  /** Resolves when it has. */
  readonly over: Promise<void>;
}

/** Why a command did not stay: its exit code, and the beginning of what it said on standard error. */
export interface Ended {
  readonly code: number;
  readonly said: string;
}

/** Lines of a shell script that say on standard output that something is held, and last as long as standard input is open.
 *  @param silenceSeconds longest silence on standard input; unlimited when absent. */
export function stayingLines(silenceSeconds?: number): readonly string[] {
  return ["echo held", ...(silenceSeconds === undefined ? [] : [listening(silenceSeconds)]), "exec cat"];
}

/** Ends the holder without a heartbeat in time, or at the end of its standard input. */
function listening(silenceSeconds: number): string {
  return `if command -v timeout >/dev/null; then
  while [ "$(timeout ${silenceSeconds} dd bs=1 count=1 2>/dev/null)" = . ]; do :; done
  exit
fi`;
}

/** Runs a command that ends with `stayingLines`, up to where it says that it holds. It ends when it is disposed of, when this process
 *  dies or when the connection to the target is lost, and costs one process there.
 *  @returns how it ended where it did before that. @throws as `Host.spawn` does; the signal's reason. */
export async function hold(
  host: Pick<Host, "spawn">,
  argv: Argv,
  signal: AbortSignal,
  pulse?: Pulse,
): Promise<Held | Ended> {
  const holder = await host.spawn(argv, signal);
  const complaint = collect(holder);
  const code = await untilAborted(Promise.race([firstWord(holder), holder.exited]), signal);
  if (code !== undefined) {
    throwIfAborted(signal);
    return { code, said: complaint() };
  }
  let isOver = false;
  const beating = pulse && beat(holder, pulse);
  const end = () => {
    isOver = true;
    beating?.();
  };
  const over = holder.exited.then(end, end);
  const dispose = () => {
    // The holder ends at the end of its input; killing it may take longer, since that takes another command on the target.
    holder.stdin.end();
    return holder[Symbol.asyncDispose]();
  };
  return { isOver: () => isOver, over, [Symbol.asyncDispose]: dispose };
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
