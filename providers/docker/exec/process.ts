import { type Duplex, addAbortSignal } from "node:stream";
import { CodedError, hasCode, messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { type Outputs, demultiplex } from "./demultiplex.ts";
import { detachKeys } from "./detach-keys.ts";
import { type ExecState, execState } from "./state.ts";
import { hijack } from "../client/hijack.ts";
import { KeptOutput } from "./kept-output.ts";
import type { DockerParts } from "../parts.ts";
import { inspectRunning } from "../container/running.ts";

export interface ExecOptions {
  readonly containerId: string;
  readonly argv: readonly string[];
  readonly tty: boolean;
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
}

/** A command started in a container by the daemon. */
export interface ExecProcess extends ExecState {
  readonly id: string;
  /** Carries standard input; `output` reads the other direction. The caller destroys it. */
  readonly connection: Duplex;
  /** Passes on output until it ends.
   *  @throws CodedError unknown with the daemon's message when the command could not be started; the signal's reason. */
  output(to: Outputs, signal: AbortSignal): Promise<void>;
}

const maxComplaintBytes = 64 * 1024;
const tellingEvents = ["readable", "end", "close"] as const;

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
      output: (to, until) => parts.docker.call(() => handOn({ connection, state, tty }, to, until), until, "none"),
    };
  } catch (error) {
    if (signal.aborted) await state.kill("KILL");
    throw notRunning(error);
  }
}

/** Prepares a command in a container of this node.
 *  @returns the daemon's exec ID.
 *  @throws CodedError not_found also for a foreign container, failed_precondition if it is not running. */
export async function createExec(parts: DockerParts, wish: ExecOptions, signal: AbortSignal): Promise<string> {
  const { docker, memory } = parts;
  if (!memory.containers.get(wish.containerId)) await inspectRunning(parts, wish.containerId, signal);
  const { tty } = wish;
  const body = {
    Cmd: wish.argv,
    Tty: tty,
    AttachStdin: wish.stdin,
    AttachStdout: wish.stdout,
    AttachStderr: wish.stderr && !tty,
    ...(tty && { DetachKeys: detachKeys }),
  };
  const path = `/containers/${wish.containerId}/exec`;
  try {
    const { Id } = await docker.ask<{ readonly Id: string }>({ method: "POST", path, body }, signal);
    return Id;
  } catch (error) {
    throw notRunning(error);
  }
}

/** Maps the daemon's 409: the container has ended, or is paused. */
function notRunning(error: unknown): unknown {
  if (!hasCode(error, "conflict")) return error;
  return new CodedError("failed_precondition", messageOf(error), { cause: error });
}

async function handOn(
  { connection, state, tty }: { readonly connection: Duplex; readonly state: ExecState; readonly tty: boolean },
  to: Outputs,
  signal: AbortSignal,
): Promise<void> {
  throwIfAborted(signal);
  addAbortSignal(signal, connection);
  await somethingToRead(connection);
  if ((await state.begun(signal)) > 0) return demultiplex(connection, { ...to, tty }, signal);
  // The daemon sends the reason instead of the output.
  const why = new KeptOutput(maxComplaintBytes);
  await demultiplex(connection, { stdout: why, stderr: why, tty }, signal);
  throw new CodedError("unknown", `failed to exec in container: ${why.bytes().toString().trim()}`);
}

/** Resolves once there is output, or none will come. A half-closed connection emits "end" without "close". */
function somethingToRead(connection: Duplex): Promise<void> {
  if (connection.readableLength > 0 || connection.readableEnded || connection.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const settle = () => {
      for (const event of tellingEvents) connection.off(event, settle);
      resolve();
    };
    for (const event of tellingEvents) connection.on(event, settle);
  });
}
