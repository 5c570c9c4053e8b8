import { randomUUID } from "node:crypto";
import { CodedError, abortError, throwIfAborted } from "../../../src/lib/errors.ts";
import { Frame } from "./frame.ts";
import { prelude } from "./prelude.ts";
import { brokenBy } from "../connection/channel-stream.ts";
import type { Session } from "../connection/sessions.ts";

/** What a shell answered. */
export interface Answer {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** What the script said of its outcome: by default its exit status. */
  readonly words: readonly string[];
}

export interface Question {
  /** Commands in POSIX sh, whole: they cannot break out of the braces that they are put in. */
  readonly script: string;
  /** Shell words told as the outcome, expanded after the script; default `"$?"`. */
  readonly outcome?: string;
  /** Bytes of each stream kept. */
  readonly maxBytes: number;
}

/** A group of processes on the target, told apart from a later one of the same number. */
export interface ProcessGroup {
  readonly id: number;
  /** When its first process started, in ticks since boot; 0 where the target cannot say. */
  readonly startTicks: string;
}

/** A POSIX shell on the target that answers one question after another. */
export interface Shell {
  readonly group: ProcessGroup;
  /** Whether it may be asked: it lives, and its last question was answered. */
  usable(): boolean;
  /** Asks; one question at a time. When the signal aborts first, the shell is of no more use: its group is to be killed.
   *  @throws unavailable when the shell or the link ends meanwhile. */
  ask(question: Question, signal?: AbortSignal): Promise<Answer>;
  close(): void;
}

const prefaceBytes = 4096;

/** Makes a shell of a session in which `/bin/sh` reads its commands from standard input.
 *  @throws failed_precondition when it is no POSIX shell. */
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
    channel.write(prelude);
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

/** Both streams end with the marker, each in its own time. */
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

/** A script that sends a signal to a group, unless the number is another's by now. For a shell of ours only. */
export function killScript({ id, startTicks }: ProcessGroup, signal: "SIGTERM" | "SIGKILL"): string {
  return `gl_kill ${id} ${startTicks} ${signal.slice("SIG".length)}`;
}
