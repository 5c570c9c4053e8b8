import { randomUUID } from "node:crypto";
import { constants } from "node:os";
import type { Duplex, Readable } from "node:stream";
import type { ClientChannel } from "ssh2";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { HostProcess } from "../../../src/seams/host.ts";
import { connectionLostError, channelStream, errorStream } from "../connection/channel-stream.ts";
import type { Link } from "../connection/link.ts";
import type { ProcessGroups } from "./groups.ts";
import { identifyScript, type ProcessGroup } from "../shell/shell.ts";
import { quoteAll } from "../shell/quote.ts";
import { noSuchProgram, programOf } from "./command.ts";
import { type Session, type Sessions, discardChannel } from "../connection/sessions.ts";

export interface SpawnerOptions {
  readonly link: Pick<Link, "countExchange">;
  readonly sessions: Pick<Sessions, "open">;
  readonly groups: ProcessGroups;
  readonly clock: Clock;
  /** Returns the command line that starts a shell. */
  readonly command: (signal: AbortSignal) => Promise<string>;
  /** True for requests of kubelet API users. */
  readonly forUser?: boolean;
}

/** A command that runs in its own session. */
export interface SshProcess extends HostProcess {
  /** Standard input and output as one stream. */
  readonly io: Duplex;
}

const never = new AbortController().signal;
/** Timeout for a shell to start a command, milliseconds, and limit of its output before that, bytes. */
const startTimeoutMs = 60_000;
const maxPrefaceBytes = 64 * 1024;
/** Time to wait for the end of a killed command, milliseconds. Killing needs a shell, which may hang in its start-up
 *  files. */
const endTimeoutMs = 5_000;
/** Like `endTimeoutMs`, once the caller's signal has aborted: a hung link must not delay the caller. */
const abortedEndTimeoutMs = 1_000;

/** Creates `Host.spawn`, which runs each command in its own session. */
export function createSpawner({ link, sessions, groups, clock, command, forUser = false }: SpawnerOptions) {
  return async (argv: readonly string[], signal: AbortSignal = never): Promise<SshProcess> => {
    throwIfAborted(signal);
    const program = programOf(argv);
    const session = await sessions.open({ start: { exec: await command(signal) }, forUser, signal });
    const { channel, connection } = session;
    const io = channelStream(channel, connection, "drop");
    const stderr = errorStream(channel, connection);
    const exited = exitOf(session);
    link.countExchange();
    const group = await startCommand(io, argv, clock.within(startTimeoutMs, signal)).catch((error: unknown) => {
      discardChannel(channel);
      throw error;
    });
    if (group === undefined) {
      discardChannel(channel);
      throw noSuchProgram(program);
    }
    const forget = groups.killOnLoss(group, connection.lost);
    let ended = false;
    const kill = (how: "SIGTERM" | "SIGKILL" = "SIGTERM") => {
      if (!ended) groups.kill(group, how);
    };
    const onAbort = () => kill("SIGKILL");
    const finish = () => {
      ended = true;
      forget();
      signal.removeEventListener("abort", onAbort);
    };
    void exited.then(finish, finish);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    return {
      pid: group.pid,
      io,
      stdin: io,
      stdout: io,
      stderr,
      exited,
      kill,
      async [Symbol.asyncDispose]() {
        kill("SIGKILL");
        const late = clock.within(signal.aborted ? abortedEndTimeoutMs : endTimeoutMs);
        await untilAborted(exited, late).catch(() => undefined);
        // sshd counts a session until its command ends: closing the channel now would free the slot too early.
        if (late.aborted) return abandon(io, stderr);
        io.destroy();
        stderr.destroy();
      },
    };
  };
}

/** Abandons a command: closes its input and drops its output. */
function abandon(io: Duplex, stderr: Readable): void {
  io.end();
  io.resume();
  stderr.resume();
}

/** Returns a script that prints the marker once the shell has read the script's last line: everything after that is the command's
 *  input. */
function script(argv: readonly string[], marker: string): string {
  const program = quoteAll(argv.slice(0, 1));
  return [
    "LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH; cd /",
    identifyScript(),
    `command -v -- ${program} >/dev/null 2>&1 || { echo ${marker} absent; exit 127; }`,
    `echo ${marker} $$ $gl_group $gl_start; exec ${quoteAll(argv)}\n`,
  ].join("\n");
}

interface StartedCommand extends ProcessGroup {
  readonly pid: number;
}

/** Starts the command and reads the shell's report; undefined if there is no such program. */
function startCommand(io: Duplex, argv: readonly string[], signal: AbortSignal): Promise<StartedCommand | undefined> {
  const marker = randomUUID();
  const work = (async () => {
    io.write(script(argv, marker));
    const words = await readMarkerLine(io, marker);
    const [pid = "", group = "", startTicks = "0"] = words;
    if (pid === "absent") return undefined;
    return { pid: Number(pid), id: Number(group), startTicks };
  })();
  return untilAborted(work, signal);
}

/** Reads up to the line that starts with the marker and returns its words; later bytes stay in the stream.
 *  @throws failed_precondition when the shell ends without that line, or prints too much before it. */
function readMarkerLine(io: Duplex, marker: string): Promise<readonly string[]> {
  return new Promise((resolve, reject) => {
    const seen = new BoundedBuffer(maxPrefaceBytes);
    const stop = () => {
      io.off("readable", onReadable);
      io.off("end", onEnd);
      io.off("error", onError);
    };
    const fail = (error: Error) => {
      stop();
      reject(error);
    };
    const onReadable = () => {
      for (let chunk = io.read() as Buffer | null; chunk !== null; chunk = io.read() as Buffer | null) {
        const from = seen.length;
        const whole = seen.add(chunk);
        const line = findMarkerLine(seen.bytes(), marker, from);
        if (line) {
          stop();
          const rest = chunk.subarray(line.end + 1 - from);
          if (rest.length > 0) io.unshift(rest);
          return resolve(line.words);
        }
        if (!whole) return fail(new CodedError("failed_precondition", prefaceTooLong));
      }
    };
    const onEnd = () =>
      fail(new CodedError("failed_precondition", "the target's shell ended before it ran the command"));
    const onError = fail;
    io.on("readable", onReadable);
    io.once("end", onEnd);
    io.once("error", onError);
  });
}

const prefaceTooLong = `the target's shell printed more than ${maxPrefaceBytes} bytes before it ran the command: make sure that no start-up file of the login shell prints anything.`;

/** Finds the complete line that starts with the marker. @param from start of the bytes not yet searched. */
function findMarkerLine(
  seen: Buffer,
  marker: string,
  from: number,
): { readonly words: readonly string[]; readonly end: number } | undefined {
  // Only a newline can complete the line.
  if (seen.indexOf(newline, from) < 0) return undefined;
  const start = seen.indexOf(marker, Math.max(0, from - maxLineBytes));
  const end = start < 0 ? -1 : seen.indexOf(newline, start);
  if (end < 0) return undefined;
  const words = seen
    .subarray(start + marker.length, end)
    .toString("latin1")
    .trim()
    .split(" ");
  return { words, end };
}

const newline = 0x0a;
/** Limit of the marker and the report, bytes. */
const maxLineBytes = 256;

/** Resolves with the exit code as in RunResult. Rejects with unavailable if the link breaks first; a rejection needs no handler. */
export function exitOf({ channel, connection: { lost } }: Session): Promise<number> {
  const exited = new Promise<number>((resolve, reject) => {
    const onLost = () => reject(connectionLostError(lost));
    if (lost.aborted) return onLost();
    lost.addEventListener("abort", onLost, { once: true });
    channel.once("exit", (code: number | null, name?: string) => {
      lost.removeEventListener("abort", onLost);
      resolve(code ?? 128 + signalNumber(name));
    });
    onClosed(channel, () => {
      lost.removeEventListener("abort", onLost);
      reject(new CodedError("unavailable", "the target did not report how the command ended"));
    });
  });
  exited.catch(() => undefined);
  return exited;
}

function onClosed(channel: ClientChannel, then: () => void): void {
  channel.once("close", then);
}

function signalNumber(name: string | undefined): number {
  const numbers: Readonly<Record<string, number>> = constants.signals;
  return numbers[`SIG${(name ?? "").replace(/^SIG/, "")}`] ?? 0;
}
