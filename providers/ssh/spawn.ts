import { randomUUID } from "node:crypto";
import { constants } from "node:os";
import type { Duplex, Readable } from "node:stream";
import type { ClientChannel } from "ssh2";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import { untilAborted } from "../../src/lib/service-group.ts";
import type { HostProcess } from "../../src/seams/host.ts";
import { brokenBy, channelStream, errorStream } from "./channel-stream.ts";
import type { Link } from "./link.ts";
import type { ProcessGroups } from "./process-groups.ts";
import { identify } from "./prelude.ts";
import { quoteAll } from "./quote.ts";
import { noProgram, programOf } from "./command.ts";
import { type Session, type Sessions, discard } from "./sessions.ts";
import type { ProcessGroup } from "./shell.ts";

export interface SpawnerOptions {
  readonly link: Pick<Link, "exchanged">;
  readonly sessions: Sessions;
  readonly groups: ProcessGroups;
  readonly clock: Clock;
  /** The command line that starts a shell. */
  readonly command: (signal: AbortSignal) => Promise<string>;
}

/** A command under way on a session of its own. */
export interface SshProcess extends HostProcess {
  /** Standard input and output as one stream. */
  readonly io: Duplex;
}

const never = new AbortController().signal;
/** How long the end of what was killed is waited for, milliseconds: it takes a shell to kill it, and a new one may hang in its
 *  start-up files. */
const endWithinMs = 5_000;

/** Commands as streams, each on a session of its own. @see Host.spawn */
export function createSpawner({ link, sessions, groups, clock, command }: SpawnerOptions) {
  return async (argv: readonly string[], signal: AbortSignal = never): Promise<SshProcess> => {
    throwIfAborted(signal);
    const program = programOf(argv);
    const session = await sessions.open({ start: { exec: await command(signal) }, signal });
    const { channel, connection } = session;
    const io = channelStream(channel, connection.lost, "drop");
    const stderr = errorStream(channel, connection.lost);
    const exited = exitOf(session);
    link.exchanged();
    const group = await introduce(io, argv, signal).catch((error: unknown) => {
      discard(channel);
      throw error;
    });
    if (group === undefined) {
      discard(channel);
      throw noProgram(program);
    }
    const forget = groups.own(group, connection.lost);
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
        const late = clock.within(endWithinMs);
        await untilAborted(exited, late).catch(() => undefined);
        // Its session counts at the target's sshd until it ends: a channel that is closed would count no longer here.
        if (late.aborted) return letGo(io, stderr);
        io.destroy();
        stderr.destroy();
      },
    };
  };
}

/** Leaves a command to its end: what it reads ends, what it says is dropped. */
function letGo(io: Duplex, stderr: Readable): void {
  io.end();
  io.resume();
  stderr.resume();
}

/** Told once the shell has read its last line: what is written from then on is the command's. */
function script(argv: readonly string[], marker: string): string {
  const program = quoteAll(argv.slice(0, 1));
  return [
    "LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH; cd /",
    identify,
    `command -v -- ${program} >/dev/null 2>&1 || { echo ${marker} absent; exit 127; }`,
    `echo ${marker} $$ $gl_group $gl_start; exec ${quoteAll(argv)}\n`,
  ].join("\n");
}

interface Introduced extends ProcessGroup {
  readonly pid: number;
}

/** Starts the command and reads what its shell says of itself; undefined when there is no such program. */
function introduce(io: Duplex, argv: readonly string[], signal: AbortSignal): Promise<Introduced | undefined> {
  const marker = randomUUID();
  const work = (async () => {
    io.write(script(argv, marker));
    const words = await lineAfter(io, marker);
    const [pid = "", group = "", startTicks = "0"] = words;
    if (pid === "absent") return undefined;
    return { pid: Number(pid), id: Number(group), startTicks };
  })();
  return untilAborted(work, signal);
}

/** Words of the line that starts with the marker; what comes after it stays in the stream. */
function lineAfter(io: Duplex, marker: string): Promise<readonly string[]> {
  return new Promise((resolve, reject) => {
    let seen = Buffer.alloc(0);
    const stop = () => {
      io.off("readable", onReadable);
      io.off("end", onEnd);
      io.off("error", onError);
    };
    const onReadable = () => {
      for (let chunk = io.read() as Buffer | null; chunk !== null; chunk = io.read() as Buffer | null) {
        seen = Buffer.concat([seen, chunk]);
        const start = seen.indexOf(marker);
        const end = start < 0 ? -1 : seen.indexOf("\n", start);
        if (end < 0) continue;
        stop();
        const line = seen.subarray(start + marker.length, end).toString("latin1");
        if (end + 1 < seen.length) io.unshift(seen.subarray(end + 1));
        return resolve(line.trim().split(" "));
      }
    };
    const onEnd = () => {
      stop();
      reject(new CodedError("failed_precondition", "the target's shell ended before it ran the command"));
    };
    const onError = (error: Error) => {
      stop();
      reject(error);
    };
    io.on("readable", onReadable);
    io.once("end", onEnd);
    io.once("error", onError);
  });
}

/** Exit code as in RunResult. Fails as unavailable when the link breaks first; who does not ask is not told. */
export function exitOf({ channel, connection: { lost } }: Session): Promise<number> {
  const exited = new Promise<number>((resolve, reject) => {
    const onLost = () => reject(brokenBy(lost));
    if (lost.aborted) return onLost();
    lost.addEventListener("abort", onLost, { once: true });
    channel.once("exit", (code: number | null, name?: string) => {
      lost.removeEventListener("abort", onLost);
      resolve(code ?? 128 + signalNumber(name));
    });
    onClosed(channel, () => {
      lost.removeEventListener("abort", onLost);
      reject(new CodedError("unavailable", "the target did not say how the command ended"));
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
