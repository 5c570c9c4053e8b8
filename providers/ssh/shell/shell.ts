import { randomUUID } from "node:crypto";
import { CodedError, abortError, throwIfAborted } from "../../../src/lib/errors.ts";
import { Frame } from "./frame.ts";
import { prelude } from "./prelude.ts";
import { brokenBy } from "../connection/channel-stream.ts";
import type { Session } from "../connection/sessions.ts";

/** A shell's answer to a question: its output and outcome. */
export interface Answer {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** Outcome words of the script: its exit status by default. */
  readonly words: readonly string[];
}

export interface Question {
  /** Complete commands in POSIX sh, which must not break out of the enclosing braces. */
  readonly script: string;
  /** Shell words printed as the outcome, expanded after the script; default `"$?"`. */
  readonly outcome?: string;
  /** Limit of each stream, bytes. */
  readonly maxBytes: number;
}

/** A process group on the target; the start time distinguishes it from a later one with the same ID. */
export interface ProcessGroup {
  readonly id: number;
  /** Start time of its first process, in ticks since boot; 0 if unknown. */
  readonly startTicks: string;
}

/** A POSIX shell on the target that answers one question after another. */
export interface Shell {
  readonly group: ProcessGroup;
  /** True if the shell is alive and has answered its last question. */
  usable(): boolean;
  /** Asks one question; there must not be another one in progress. When the signal aborts, the shell is no longer usable: its group has to be killed.
   *  @throws unavailable when the shell or the link ends meanwhile. */
  ask(question: Question, signal?: AbortSignal): Promise<Answer>;
  close(): void;
}

const prefaceBytes = 4096;

/** Starts a shell in a session where `/bin/sh` reads commands from standard input.
 *  @throws failed_precondition when it is not a POSIX shell. */
export async function startShell(session: Session, signal?: AbortSignal): Promise<Shell> {
  const { channel, connection } = session;
  const asking: { now?: Exchange } = {};
  let ended: CodedError | undefined;
  const end = (why: CodedError) => {
    ended ??= why;
    asking.now?.fail(ended);
  };
  channel.on("data", (chunk: Buffer) => asking.now?.out(chunk));
  channel.stderr.on("data", (chunk: Buffer) => asking.now?.err(chunk));
  channel.on("error", () => undefined);
  channel.once("close", () => end(new CodedError("unavailable", "the shell on the target has ended")));
  const onLost = () => end(brokenBy(connection.lost));
  if (connection.lost.aborted) onLost();
  connection.lost.addEventListener("abort", onLost, { once: true });
  channel.once("close", () => connection.lost.removeEventListener("abort", onLost));

  const ask = async ({ script, outcome = '"$?"', maxBytes }: Question, stop?: AbortSignal): Promise<Answer> => {
    throwIfAborted(stop);
    if (ended) throw ended;
    const exchange = beginExchange(maxBytes);
    asking.now = exchange;
    const onAbort = () => stop && end(abortError(stop));
    stop?.addEventListener("abort", onAbort, { once: true });
    channel.write(
      `{ ${script}\n} </dev/null\nset -- ${outcome}\nprintf '%s %s\\n' ${exchange.marker} "$*" >&5\necho ${exchange.marker} >&6\n`,
    );
    try {
      return await exchange.answer;
    } finally {
      stop?.removeEventListener("abort", onAbort);
      delete asking.now;
    }
  };
  const close = () => {
    end(new CodedError("unavailable", "the shell on the target was closed"));
    channel.end();
    channel.close();
  };
  const shell = { usable: () => ended === undefined && asking.now === undefined, ask, close };
  try {
    channel.write(prelude());
    return { ...shell, group: await identify(shell.ask, signal) };
  } catch (error) {
    close();
    throw connection.lost.aborted || signal?.aborted ? error : noPosixShell(error);
  }
}

interface Exchange {
  readonly marker: string;
  readonly answer: Promise<Answer>;
  out(chunk: Buffer): void;
  err(chunk: Buffer): void;
  fail(why: CodedError): void;
}

/** Collects an answer: both streams end with the marker, independently of each other. */
function beginExchange(maxBytes: number): Exchange {
  const marker = randomUUID();
  const [out, err] = [new Frame(marker, maxBytes), new Frame(marker, maxBytes)];
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  let stdout: { readonly data: Buffer; readonly words: readonly string[] } | undefined;
  let stderr: { readonly data: Buffer } | undefined;
  const settle = () => {
    if (stdout && stderr) resolve({ stdout: stdout.data, stderr: stderr.data, words: stdout.words });
  };
  return {
    marker,
    answer: promise,
    out(chunk) {
      stdout = out.push(chunk);
      settle();
    },
    err(chunk) {
      stderr = err.push(chunk);
      settle();
    },
    fail: reject,
  };
}

async function identify(ask: Shell["ask"], signal?: AbortSignal): Promise<ProcessGroup> {
  const { words } = await ask({ script: ":", outcome: '"$gl_group" "$gl_start"', maxBytes: prefaceBytes }, signal);
  const [id = "", startTicks = ""] = words;
  if (!/^\d+$/.test(id) || !/^\d+$/.test(startTicks)) throw noPosixShell();
  return { id: Number(id), startTicks };
}

function noPosixShell(cause?: unknown): CodedError {
  return new CodedError(
    "failed_precondition",
    "the target gives this user no POSIX shell: /bin/sh must be one, and sshd must not force another command.",
    { cause },
  );
}

/** Returns a script that signals a group, unless its ID has been reused. Needs our prelude. */
export function killScript({ id, startTicks }: ProcessGroup, signal: "SIGTERM" | "SIGKILL"): string {
  return `gl_kill ${id} ${startTicks} ${signal.slice("SIG".length)}`;
}
