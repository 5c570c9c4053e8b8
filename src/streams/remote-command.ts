import type { Readable, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type ExitStatus, exitStatus, internalError } from "./exit-status.ts";
import type { TerminalSize } from "./terminal-sizes.ts";

/** The standard streams of a command in a container, as the protocol side gives them to whoever runs the command. A stream
 *  fails when the client vanishes; its errors need no listener. */
export interface CommandStreams {
  /** What the client sends; ends at the client's half-close. Present iff asked for. */
  readonly stdin?: Readable;
  /** Present iff asked for. */
  readonly stdout?: Writable;
  /** Present iff asked for; never with a terminal. */
  readonly stderr?: Writable;
  readonly tty: boolean;
  /** Terminal sizes as they come; the newest wins if the reader is slow. Without a terminal there are none. */
  readonly sizes: AsyncIterable<TerminalSize>;
}

/** Which streams a command has. */
export interface CommandRequest {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** Runs a command on its streams, until it has ended and all its output is written.
 *  @param signal aborts when the client has vanished. @returns the exit code, or the whole status where somebody else has
 *  put it into words. @throws what the client is told instead. */
export type RunCommand = (streams: CommandStreams, signal: AbortSignal) => Promise<number | ExitStatus>;

/** A command's side of a connection. */
export interface CommandWire {
  readonly streams: CommandStreams;
  /** Aborts when the client has vanished. */
  readonly gone: AbortSignal;
  /** Tells how the command ended; resolves when the status is on its way. */
  tell(status: ExitStatus): Promise<void>;
}

/** Runs a command for a client: output first, all of it, then how the command ended. Never throws. */
export async function conduct({ streams, gone, tell }: CommandWire, run: RunCommand, log: Logger): Promise<void> {
  const status = await statusOf(streams, gone, run, log);
  streams.stdin?.destroy();
  const outputs = [streams.stdout, streams.stderr].filter((stream) => stream !== undefined);
  await Promise.allSettled(outputs.map(finish));
  if (gone.aborted) return;
  await tell(status).catch((error: unknown) => {
    log.debug({ why: messageOf(error) }, "client left before it heard how its command ended");
  });
}

async function statusOf(streams: CommandStreams, gone: AbortSignal, run: RunCommand, log: Logger): Promise<ExitStatus> {
  try {
    const ended = await run(streams, gone);
    return typeof ended === "number" ? exitStatus(ended) : ended;
  } catch (error) {
    if (!gone.aborted) log.warn({ err: error }, "command in a container failed");
    return internalError(error);
  }
}

/** Ends an output stream, unless that has been done. */
export async function finish(stream: Writable): Promise<void> {
  if (!stream.writableEnded) stream.end();
  await finished(stream, { readable: false });
}
