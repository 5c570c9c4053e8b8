import type { Duplex } from "node:stream";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { connectionLost, internalError, statusBytes } from "./exit-status.ts";
import { streamCreationTimeoutMs } from "./timeouts.ts";
import {
  type CommandRequest,
  type CommandServerDeps,
  type CommandRunner,
  runForClient,
  endOutput,
} from "./remote-command.ts";
import type { CommandStreams } from "../seams/runtime.ts";
import { SpdyConnection } from "./spdy/connection.ts";
import type { Headers } from "./spdy/header-block.ts";
import type { SpdyStream } from "./spdy/stream.ts";
import { noSizes, terminalSizes } from "./terminal-sizes.ts";
import { untilAborted } from "../lib/runnables.ts";

/** Versions of the remote command protocol over SPDY, newest first.
 *  @see https://github.com/kubernetes/cri-streaming */
export const commandProtocols = [
  "v4.channel.k8s.io",
  "v3.channel.k8s.io",
  "v2.channel.k8s.io",
  "channel.k8s.io",
] as const;
export type CommandProtocol = (typeof commandProtocols)[number];

/** Types of the streams that a client may open. */
const streamTypes = ["error", "stdin", "stdout", "stderr", "resize"];

/** Serves a command on a SPDY connection: runs it once all its streams are open. Resolves when client and connection are gone; never
 *  throws. */
export async function serveCommandOverSpdy(
  { socket, protocol }: { readonly socket: Duplex; readonly protocol: CommandProtocol },
  request: CommandRequest,
  run: CommandRunner,
  { signal: stopped, clock, log }: CommandServerDeps,
): Promise<void> {
  const opened = new Map<string, SpdyStream>();
  const accepted = new Set<string>();
  const required = requiredStreams(request, protocol);
  const missing = new Set(required);
  const complete = Promise.withResolvers<void>();
  const connection: SpdyConnection = new SpdyConnection({
    socket,
    clock,
    handler: {
      accepts(headers) {
        const type = streamType(headers);
        if (!streamTypes.includes(type) || accepted.has(type)) return false;
        accepted.add(type);
        return true;
      },
      onOpened(stream) {
        const type = streamType(stream.headers);
        opened.set(type, stream);
        // Unread input must not block the other streams.
        if (!required.includes(type) || (type !== "stdin" && type !== "resize")) stream.resume();
        missing.delete(type);
        if (missing.size === 0) complete.resolve();
      },
      // A client that resets one stream of a command abandons the command.
      onReset: () => void connection.close(),
    },
  });
  const { gone } = connection;
  const sendStatus = async (status: Parameters<typeof statusBytes>[0]) => {
    const error = opened.get("error");
    if (!error) return;
    error.write(statusBytes(status, protocol === "v4.channel.k8s.io"));
    await endOutput(error);
  };
  try {
    await waitForStreams(complete.promise, AbortSignal.any([gone, stopped]), clock);
    if (protocol === "channel.k8s.io") opened.get("stdin")?.end();
    await runForClient({ streams: commandStreams(request, opened), gone, stopped, sendStatus }, run, log);
  } catch (error) {
    log.debug({ err: error }, "client did not open its streams");
    if (!gone.aborted)
      await sendStatus(internalError(stopped.aborted ? connectionLost() : error)).catch(() => undefined);
  }
  await connection.close();
}

/** Returns the streams that must be open before the command runs. The first two versions have no resizing. */
function requiredStreams({ stdin, stdout, stderr, tty }: CommandRequest, protocol: CommandProtocol): string[] {
  const resizes = protocol === "v4.channel.k8s.io" || protocol === "v3.channel.k8s.io";
  const requested = { error: true, stdin, stdout, stderr, resize: tty && resizes };
  return streamTypes.filter((type) => requested[type as keyof typeof requested]);
}

function commandStreams(request: CommandRequest, opened: ReadonlyMap<string, SpdyStream>): CommandStreams {
  const [stdin, stdout, stderr, resize] = ["stdin", "stdout", "stderr", "resize"].map((type) => opened.get(type));
  return {
    ...(request.stdin && stdin && { stdin }),
    ...(request.stdout && stdout && { stdout }),
    ...(request.stderr && stderr && { stderr }),
    tty: request.tty,
    sizes: request.tty && resize ? terminalSizes(resize) : noSizes(),
  };
}

async function waitForStreams(complete: Promise<void>, gone: AbortSignal, clock: Clock): Promise<void> {
  const failed = Promise.withResolvers<never>();
  const timer = clock.after(streamCreationTimeoutMs, () =>
    failed.reject(new CodedError("deadline_exceeded", "timed out waiting for client to create streams")),
  );
  try {
    await untilAborted(Promise.race([complete, failed.promise]), gone);
  } finally {
    timer.cancel();
  }
}

function streamType(headers: Headers): string {
  return headers.get("streamtype") ?? "";
}
