import type { Writable } from "node:stream";
import { finished } from "node:stream/promises";
import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog, Logger } from "../lib/log.ts";
import { type ExitStatus, connectionLost, exitStatus, internalError } from "./exit-status.ts";
import type { CommandStreams } from "../seams/runtime.ts";

export interface CommandRequest {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** Runs a command and returns its exit code, as `RunCommand` does, or the complete status from another server. */
export type CommandRunner = (streams: CommandStreams, signal: AbortSignal) => Promise<number | ExitStatus>;

/** Dependencies of the server of a command. */
export interface CommandServerDeps extends ClockAndLog {
  /** Aborts when the server stops. */
  readonly signal: AbortSignal;
}

/** A command's side of a connection. */
export interface CommandConnection {
  readonly streams: CommandStreams;
  /** Aborts when the client disconnects. */
  readonly gone: AbortSignal;
  /** Aborts when the server stops: the command is abandoned, and the client gets the status of a lost connection. */
  readonly stopped: AbortSignal;
  /** Sends the command's result; resolves once the status is being sent. */
  sendStatus(status: ExitStatus): Promise<void>;
}

/** Runs a command for a client: first sends all its output, then its result. Never throws. */
export async function runForClient(
  { streams, gone, stopped, sendStatus }: CommandConnection,
  run: CommandRunner,
  log: Logger,
): Promise<void> {
  const status = await runToStatus(streams, { gone, stopped }, run, log);
  streams.stdin?.destroy();
  const outputs = [streams.stdout, streams.stderr].filter((stream) => stream !== undefined);
  await Promise.allSettled(outputs.map(endOutput));
  if (gone.aborted) return;
  await sendStatus(status).catch((error: unknown) => {
    log.debug({ why: messageOf(error) }, "client disconnected before it received its command's result");
  });
}

async function runToStatus(
  streams: CommandStreams,
  { gone, stopped }: Pick<CommandConnection, "gone" | "stopped">,
  run: CommandRunner,
  log: Logger,
): Promise<ExitStatus> {
  try {
    const result = await run(streams, AbortSignal.any([gone, stopped]));
    return typeof result === "number" ? exitStatus(result) : result;
  } catch (error) {
    if (stopped.aborted) return internalError(connectionLost());
    if (!gone.aborted) log.warn({ err: error }, "command in a container failed");
    return internalError(error);
  }
}

/** Ends an output stream, unless it has ended. */
export async function endOutput(stream: Writable): Promise<void> {
  if (!stream.writableEnded) stream.end();
  await finished(stream, { readable: false });
}
