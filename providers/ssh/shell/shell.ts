import { randomUUID } from "node:crypto";
import { CodedError, abortError, throwIfAborted } from "../../../src/lib/errors.ts";
import { connectionLostError } from "../connection/channel-stream.ts";
import type { Session } from "../connection/sessions.ts";
import { clipText } from "../connection/ssh2-peer.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import { programText } from "../../../src/lib/program-text.ts";
import { visibleLine } from "../../../src/lib/visible-text.ts";

/** Result of a script: its output and outcome. */
export interface ShellResult {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** Words that the script printed as its outcome; by default only its exit status. */
  readonly words: readonly string[];
}

export interface ShellRequest {
  /** Complete commands in POSIX sh, which must not break out of the enclosing braces. */
  readonly script: string;
  /** Shell words printed as the outcome, expanded after the script; default `"$?"`. */
  readonly outcome?: string;
  /** Maximum size of each output stream, bytes; the rest is dropped. */
  readonly maxBytes: number;
}

/** A process group on the target; the start time distinguishes it from a later one with the same ID. */
export interface ProcessGroup {
  readonly id: number;
  /** Start time of its first process, in ticks since boot; 0 if unknown. */
  readonly startTicks: string;
}

/** A POSIX shell on the target that runs one script after another. */
export interface Shell {
  readonly group: ProcessGroup;
  /** True if the shell is alive and has completed its last script. */
  usable(): boolean;
  /** Runs a script; no other script may be in progress. If the signal aborts, the shell is no longer usable, and its process
   *  group has to be killed.
   *  @throws unavailable when the shell or the link ends meanwhile. */
  run(question: ShellRequest, signal?: AbortSignal): Promise<ShellResult>;
  close(): void;
}

const maxPrefaceBytes = 4096;
/** Limit of the output that is quoted when the session ends before the shell has started, bytes. */
const maxQuotedBytes = 1024;

/** Starts a shell in a session where `/bin/sh` reads commands from standard input.
 *  @throws failed_precondition if it is not a POSIX shell. If the session ended instead, the message quotes what it printed. */
export async function startShell(session: Session, signal?: AbortSignal): Promise<Shell> {
  const { channel, connection } = session;
  const pending: { now?: PendingRequest } = {};
  const preface = new BoundedBuffer(maxQuotedBytes);
  const collect = (chunk: Buffer) => preface.add(chunk);
  for (const stream of [channel, channel.stderr]) stream.on("data", collect);
  let ended: CodedError | undefined;
  const end = (why: CodedError) => {
    ended ??= why;
    pending.now?.fail(ended);
  };
  channel.on("data", (chunk: Buffer) => pending.now?.out(chunk));
  channel.stderr.on("data", (chunk: Buffer) => pending.now?.err(chunk));
  channel.on("error", () => undefined);
  channel.once("close", () => end(new CodedError("unavailable", "the shell on the target has ended")));
  const onLost = () => end(connectionLostError(connection.lost));
  if (connection.lost.aborted) onLost();
  connection.lost.addEventListener("abort", onLost, { once: true });
  channel.once("close", () => connection.lost.removeEventListener("abort", onLost));

  const run = async (
    { script, outcome = '"$?"', maxBytes }: ShellRequest,
    stop?: AbortSignal,
  ): Promise<ShellResult> => {
    throwIfAborted(stop);
    if (ended) throw ended;
    const exchange = beginRequest(maxBytes);
    pending.now = exchange;
    const onAbort = () => stop && end(abortError(stop));
    stop?.addEventListener("abort", onAbort, { once: true });
    channel.write(
      `{ ${script}\n} </dev/null\nset -- ${outcome}\nprintf '%s %s\\n' ${exchange.marker} "$*" >&5\necho ${exchange.marker} >&6\n`,
    );
    try {
      return await exchange.answer;
    } finally {
      stop?.removeEventListener("abort", onAbort);
      delete pending.now;
    }
  };
  const close = () => {
    end(new CodedError("unavailable", "the shell on the target was closed"));
    channel.end();
    channel.close();
  };
  const shell = { usable: () => ended === undefined && pending.now === undefined, run, close };
  try {
    channel.write(prelude());
    return { ...shell, group: await identifyGroup(run, signal) };
  } catch (error) {
    const printed = ended ? preface.bytes().toString() : "";
    close();
    throw connection.lost.aborted || signal?.aborted ? error : noPosixShell(error, printed);
  } finally {
    for (const stream of [channel, channel.stderr]) stream.off("data", collect);
  }
}

type PendingRequest = ReturnType<typeof beginRequest>;

/** Collects a script's result: standard output and standard error end with the marker, independently of each other. */
function beginRequest(maxBytes: number) {
  const marker = randomUUID();
  const [out, err] = [new ShellFrame(marker, maxBytes), new ShellFrame(marker, maxBytes)];
  const { promise, resolve, reject } = Promise.withResolvers<ShellResult>();
  let stdout: { readonly data: Buffer; readonly words: readonly string[] } | undefined;
  let stderr: { readonly data: Buffer } | undefined;
  const settle = () => {
    if (stdout && stderr) resolve({ stdout: stdout.data, stderr: stderr.data, words: stdout.words });
  };
  return {
    marker,
    answer: promise,
    out(chunk: Buffer): void {
      stdout = out.push(chunk);
      settle();
    },
    err(chunk: Buffer): void {
      stderr = err.push(chunk);
      settle();
    },
    fail: reject,
  };
}

async function identifyGroup(run: Shell["run"], signal?: AbortSignal): Promise<ProcessGroup> {
  const { words } = await run({ script: ":", outcome: '"$gl_group" "$gl_start"', maxBytes: maxPrefaceBytes }, signal);
  const [id = "", startTicks = ""] = words;
  if (!/^\d+$/.test(id) || !/^\d+$/.test(startTicks)) throw noPosixShell();
  return { id: Number(id), startTicks };
}

/** @param printed output of the session, which may contain the reason: on cloud images, root's key only runs a command that
 *  prints which user to log in as. */
function noPosixShell(cause?: unknown, printed = ""): CodedError {
  const line = visibleLine(clipText(printed));
  const quoted = line === "" ? "" : ` Its answer is "${line}": if that names another user, log in as that user.`;
  return new CodedError(
    "failed_precondition",
    `the target does not give this user a POSIX shell: /bin/sh must be one, and sshd must not force another command, or a directory without programs (ChrootDirectory).${quoted}`,
    { cause },
  );
}

/** Returns a script that signals a group, unless its ID has been reused. Needs our prelude. */
export function killScript({ id, startTicks }: ProcessGroup, signal: "SIGTERM" | "SIGKILL"): string {
  return `gl_kill ${id} ${startTicks} ${signal.slice("SIG".length)}`;
}

/** Parses a shell's output up to the last line of a script's result, which consists of the marker (unknown to commands) and some
 *  words. Nothing follows that line before the next script, so only the end of the output is searched. */
export class ShellFrame {
  readonly #marker: Buffer;
  readonly #kept: BoundedBuffer;
  #tail = Buffer.alloc(0);

  /** @param limit bytes kept before the marker; the rest is dropped. */
  constructor(marker: string, limit: number) {
    this.#marker = Buffer.from(marker, "latin1");
    this.#kept = new BoundedBuffer(limit);
  }

  /** @returns the complete result: the output, and the words after the marker; undefined while it is incomplete. */
  push(chunk: Buffer): { readonly data: Buffer; readonly words: readonly string[] } | undefined {
    const seen = Buffer.concat([this.#tail, chunk]);
    const at = seen.at(-1) === 0x0a ? seen.lastIndexOf(this.#marker) : -1;
    if (at >= 0) {
      this.#kept.add(seen.subarray(0, at));
      const words = seen
        .subarray(at + this.#marker.length)
        .toString("latin1")
        .trim()
        .split(" ");
      return { data: this.#kept.bytes(), words };
    }
    // The marker's line may arrive in pieces, so a tail that may contain its beginning is held back.
    const held = Math.min(seen.length, this.#marker.length + maxWordsBytes);
    this.#kept.add(seen.subarray(0, seen.length - held));
    this.#tail = Buffer.from(seen.subarray(seen.length - held));
    return undefined;
  }
}

/** Limit of the words after the marker. */
const maxWordsBytes = 80;

/** POSIX sh that sets gl_group to the shell's process group and gl_start to the start time of the group's first process,
 *  in ticks since boot; 0 if /proc does not show it. With sudo that process is sudo. */
export const identifyScript = (): string => programText("providers/ssh/shell/identify.sh");

/** Functions loaded into every shell, from prelude.sh, identify.sh and removal.sh. */
export const prelude = (): string =>
  [programText("providers/ssh/shell/prelude.sh"), identifyScript(), programText("providers/ssh/shell/removal.sh")].join(
    "\n",
  );
