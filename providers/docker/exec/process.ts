import { type Duplex, addAbortSignal, Writable } from "node:stream";
import { CodedError, hasCode, messageOf, throwIfAborted, abortError } from "../../../src/lib/errors.ts";
import { type CommandOutputs, demultiplex } from "./demultiplex.ts";
import { detachKeys, hijack } from "../client/hijack.ts";
import type { DockerParts } from "../parts.ts";
import { inspectRunning } from "../container/running.ts";
import { script } from "../../../src/seams/command.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import type { Containers } from "../../../src/seams/runtime.ts";

export interface ExecOptions {
  readonly containerId: string;
  readonly argv: readonly string[];
  readonly tty: boolean;
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
}

/** A command started in a container by the daemon. */
interface ExecProcess extends ExecState {
  readonly id: string;
  /** Connection to write standard input to; `output` reads the other direction. The caller destroys it. */
  readonly connection: Duplex;
  /** Passes on output until it ends.
   *  @throws CodedError unknown with the daemon's message when the command could not be started; the signal's reason. */
  output(to: CommandOutputs, signal: AbortSignal): Promise<void>;
}

const maxErrorBytes = 64 * 1024;
const outputEvents = ["readable", "end", "close"] as const;

/** Starts a command that `createExec` prepared. If the signal aborts meanwhile, the command is killed.
 *  @param forUser true for a request of a kubelet API user.
 *  @throws CodedError failed_precondition if the container is no longer running. */
export async function startExec(
  parts: DockerParts,
  { id, tty, forUser = false }: Pick<ExecOptions, "tty"> & { readonly id: string; readonly forUser?: boolean },
  signal: AbortSignal,
): Promise<ExecProcess> {
  const state = execState(parts, id);
  try {
    const body = { Detach: false, Tty: tty };
    const connection = await parts.docker.call(
      (_engine, until, apart, forUsers) =>
        hijack(forUser ? forUsers : apart, { path: `/exec/${id}/start`, body, signal: until }),
      signal,
    );
    return {
      ...state,
      id,
      connection,
      output: (to, until) => parts.docker.call(() => copyOutput({ connection, state, tty }, to, until), until, "none"),
    };
  } catch (error) {
    if (signal.aborted) await state.kill("KILL");
    throw notRunning(error);
  }
}

/** Prepares a command in a running container; `startExec` starts it. @returns the daemon's exec ID.
 *  @throws CodedError failed_precondition if the container is not running. */
export async function createExec(parts: DockerParts, options: ExecOptions, signal: AbortSignal): Promise<string> {
  const { docker, facts } = parts;
  if (!facts.containers.get(options.containerId)) await inspectRunning(parts, options.containerId, signal);
  const { tty } = options;
  const body = {
    Cmd: options.argv,
    Tty: tty,
    AttachStdin: options.stdin,
    AttachStdout: options.stdout,
    AttachStderr: options.stderr && !tty,
    ...(tty && { DetachKeys: detachKeys }),
  };
  const path = `/containers/${options.containerId}/exec`;
  try {
    const { Id } = await docker.request<{ readonly Id: string }>({ method: "POST", path, body }, signal);
    return Id;
  } catch (error) {
    throw notRunning(error);
  }
}

/** Converts the daemon's 409, which means that the container has ended or is paused, to failed_precondition. */
function notRunning(error: unknown): unknown {
  if (!hasCode(error, "conflict")) return error;
  return new CodedError("failed_precondition", messageOf(error), { cause: error });
}

async function copyOutput(
  { connection, state, tty }: { readonly connection: Duplex; readonly state: ExecState; readonly tty: boolean },
  to: CommandOutputs,
  signal: AbortSignal,
): Promise<void> {
  throwIfAborted(signal);
  addAbortSignal(signal, connection);
  await untilReadable(connection);
  if ((await state.started(signal)) > 0) return demultiplex(connection, { ...to, tty }, signal);
  // The daemon sends the reason instead of the output.
  const why = new BoundedOutput(maxErrorBytes);
  await demultiplex(connection, { stdout: why, stderr: why, tty }, signal);
  throw new CodedError("unknown", `failed to exec in container: ${why.bytes().toString().trim()}`);
}

/** Resolves once there is output, or the output has ended. A half-closed connection emits "end" without "close". */
function untilReadable(connection: Duplex): Promise<void> {
  if (connection.readableLength > 0 || connection.readableEnded || connection.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const settle = () => {
      for (const event of outputEvents) connection.off(event, settle);
      resolve();
    };
    for (const event of outputEvents) connection.on(event, settle);
  });
}

/** State of a command in a container, and a way to signal it, which the Engine API lacks. */
type ExecState = ReturnType<typeof execState>;

interface ExecInspection {
  /** PID on the target; 0 while there is no process, or if it could not be started. */
  readonly Pid: number;
  readonly Running: boolean;
  /** Exit code; null until the command has ended, or has failed to start. */
  readonly ExitCode: number | null;
}

/** Interval between inspections. */
const firstIntervalMs = 5;
const maxIntervalMs = 1000;
const killTimeoutMs = 120_000;
const killWaitMs = 5000;

/** Creates access to the state of a command. @param id the daemon's exec ID. */
function execState(parts: DockerParts, id: string) {
  const { docker, clock, host, log } = parts;
  const inspect = (signal: AbortSignal) => docker.request<ExecInspection>({ path: `/exec/${id}/json` }, signal);
  let last: ExecInspection | undefined;
  const pollUntil = async (enough: (seen: ExecInspection) => boolean, signal: AbortSignal): Promise<ExecInspection> => {
    for (let waitMs = firstIntervalMs; ; waitMs = Math.min(2 * waitMs, maxIntervalMs)) {
      last = await inspect(signal);
      if (enough(last)) return last;
      await clock.sleep(waitMs, signal);
    }
  };
  const hasStarted = ({ Pid, ExitCode }: ExecInspection) => Pid > 0 || ExitCode !== null;
  const hasEnded = ({ Running, ExitCode }: ExecInspection) => !Running && ExitCode !== null;
  return {
    /** Waits until the command has started. @returns its PID on the target; 0 if it could not be started. */
    started: async (signal: AbortSignal): Promise<number> => (await pollUntil(hasStarted, signal)).Pid,
    /** Waits until the command has ended. @returns its exit code. */
    ended: async (signal: AbortSignal): Promise<number> =>
      (last && hasEnded(last) ? last : await pollUntil(hasEnded, signal)).ExitCode ?? 0,
    /** Signals the command if it is still running. Never throws. Waits five seconds for an unresponsive daemon; the signal is still sent if
     *  the daemon responds within two minutes. */
    async kill(how: "KILL" | "HUP"): Promise<void> {
      const killed = new AbortController();
      const kill = sendSignal(how).finally(() => killed.abort());
      await Promise.race([kill, clock.sleep(killWaitMs, killed.signal).catch(() => undefined)]);
    },
  };

  async function sendSignal(how: "KILL" | "HUP"): Promise<void> {
    const timeout = clock.within(killTimeoutMs);
    try {
      const { Pid: pid, Running: running } = await pollUntil(hasStarted, timeout);
      if (!running || pid === 0) return;
      // This uses the shell's builtin, as some machines have no `kill` program.
      const argv = script('kill -s "$1" "$2"', how, String(pid));
      const { code, stderr } = await host.run(argv, { signal: timeout });
      if (code !== 0) log.warn({ exec: id, pid, why: stderr.trim() }, "cannot kill a command in a container");
    } catch (error) {
      // If the exec is missing, the command has ended with its container.
      if (!hasCode(error, "not_found")) log.warn({ exec: id, err: error }, "cannot kill a command in a container");
    }
  }
}

/** Keeps the first bytes written and drops the rest. */
export class BoundedOutput extends Writable {
  readonly #kept: BoundedBuffer;

  /** @param limit bytes to keep. */
  constructor(limit: number) {
    super();
    this.#kept = new BoundedBuffer(limit);
  }

  bytes(): Buffer {
    return this.#kept.bytes();
  }

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#kept.add(piece);
    done();
  }
}

/** Limit of each output, as in CRI. */
const maxOutputBytes = 16 * 1024 * 1024;

/** execSync over the Engine API. A command that exceeds its timeout, or whose caller gives up, is killed. */
export function dockerExec(parts: DockerParts): Pick<Containers, "execSync"> {
  return {
    async execSync(containerId, argv, timeoutSeconds, signal) {
      const options = { containerId, argv, tty: false, stdin: false, stdout: true, stderr: true };
      // This call is not part of the command's timeout: it waits for the daemon.
      const id = await createExec(parts, options, signal);
      const until = timeoutSeconds > 0 ? parts.clock.within(timeoutSeconds * 1000, signal) : signal;
      const [stdout, stderr] = [new BoundedOutput(maxOutputBytes), new BoundedOutput(maxOutputBytes)];
      let running: ExecProcess | undefined;
      try {
        running = await startExec(parts, { id, tty: false }, until);
        await running.output({ stdout, stderr }, until);
        const exitCode = await running.ended(until);
        return { stdout: stdout.bytes(), stderr: stderr.bytes(), exitCode };
      } catch (error) {
        if (!until.aborted) throw error;
        await running?.kill("KILL");
        if (signal.aborted) throw abortError(signal);
        throw new CodedError("deadline_exceeded", `timeout ${timeoutSeconds}s exceeded`, { cause: error });
      } finally {
        running?.connection.destroy();
      }
    },
  };
}
