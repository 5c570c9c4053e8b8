import type { Readable, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type ExitStatus, exitStatus, internalError } from "./exit-status.ts";
import type { TerminalSize } from "./terminal-sizes.ts";

/** Standard streams of a command in a container, as the protocol side passes them to the command's runner. A stream fails when the client
 *  disconnects; its errors need no listener. */
export interface CommandStreams {
  /** The client's input; ends at the client's half-close. Present iff requested. */
  readonly stdin?: Readable;
  /** Present iff requested. */
  readonly stdout?: Writable;
  /** Present iff requested; never with a terminal. */
  readonly stderr?: Writable;
  readonly tty: boolean;
  /** Terminal sizes in order; a slow reader gets only the newest. Empty without a terminal. */
  readonly sizes: AsyncIterable<TerminalSize>;
}

export interface CommandRequest {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** Runs a command on its streams, until it has ended and all its output is written. @param signal aborts when the client disconnects.
 *  @returns the exit code, or a complete status from another server. @throws the error that the client gets instead. */
export type RunCommand = (streams: CommandStreams, signal: AbortSignal) => Promise<number | ExitStatus>;

/** A command's side of a connection. */
export interface CommandConnection {
  readonly streams: CommandStreams;
  /** Aborts when the client disconnects. */
  readonly gone: AbortSignal;
  /** Sends the command's result; resolves once the status is being sent. */
  sendStatus(status: ExitStatus): Promise<void>;
}

/** Runs a command for a client: first sends all its output, then its result. Never throws. */
export async function runForClient(
  { streams, gone, sendStatus }: CommandConnection,
  run: RunCommand,
  log: Logger,
): Promise<void> {
  const status = await runToStatus(streams, gone, run, log);
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
  gone: AbortSignal,
  run: RunCommand,
  log: Logger,
): Promise<ExitStatus> {
  try {
    const result = await run(streams, gone);
    return typeof result === "number" ? exitStatus(result) : result;
  } catch (error) {
    if (!gone.aborted) log.warn({ err: error }, "command in a container failed");
    return internalError(error);
  }
}

/** Ends an output stream, unless it has ended. */
export async function endOutput(stream: Writable): Promise<void> {
  if (!stream.writableEnded) stream.end();
  await finished(stream, { readable: false });
}
