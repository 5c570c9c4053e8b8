import type { Duplex } from "node:stream";
import type { Clock } from "../lib/clock.ts";
import { CodedError, abortError } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { internalError, statusBytes } from "./exit-status.ts";
import { creationMs } from "./patience.ts";
import { type CommandRequest, type CommandStreams, type RunCommand, conduct, finish } from "./remote-command.ts";
import { SpdyConnection } from "./spdy/connection.ts";
import type { Headers } from "./spdy/header-block.ts";
import type { SpdyStream } from "./spdy/stream.ts";
import { noSizes, terminalSizes } from "./terminal-sizes.ts";

/** Versions of the remote command protocol over SPDY, newest first.
 *  @see https://github.com/kubernetes/cri-streaming */
export const commandProtocols = [
  "v4.channel.k8s.io",
  "v3.channel.k8s.io",
  "v2.channel.k8s.io",
  "channel.k8s.io",
] as const;
export type CommandProtocol = (typeof commandProtocols)[number];

export interface CommandDeps {
  readonly clock: Clock;
  readonly log: Logger;
}

/** Streams that a client may open, with their purposes. */
const streamTypes = ["error", "stdin", "stdout", "stderr", "resize"];

/** Serves a command on a SPDY connection: runs it once all its streams are open. Resolves when client and connection are gone; never
 *  throws. */
export async function commandOverSpdy(
  { socket, protocol }: { readonly socket: Duplex; readonly protocol: CommandProtocol },
  request: CommandRequest,
  run: RunCommand,
  { clock, log }: CommandDeps,
): Promise<void> {
  const opened = new Map<string, SpdyStream>();
  const wanted = new Set<string>();
  const needed = neededStreams(request, protocol);
  const missing = new Set(needed);
  const complete = Promise.withResolvers<void>();
  const connection: SpdyConnection = new SpdyConnection({
    socket,
    clock,
    taker: {
      wants(headers) {
        const type = streamType(headers);
        if (!streamTypes.includes(type) || wanted.has(type)) return false;
        wanted.add(type);
        return true;
      },
      opened(stream) {
        const type = streamType(stream.headers);
        opened.set(type, stream);
        // Unread input must not block the other streams.
        if (!needed.includes(type) || (type !== "stdin" && type !== "resize")) stream.resume();
        missing.delete(type);
        if (missing.size === 0) complete.resolve();
      },
      // A client that resets one stream of a command abandons the command.
      reset: () => void connection.close(),
    },
  });
  const { gone } = connection;
  const tell = async (status: Parameters<typeof statusBytes>[0]) => {
    const error = opened.get("error");
    if (!error) return;
    error.write(statusBytes(status, protocol === "v4.channel.k8s.io"));
    await finish(error);
  };
  try {
    await untilComplete(complete.promise, gone, clock);
    if (protocol === "channel.k8s.io") opened.get("stdin")?.end();
    await conduct({ streams: streamsOf(request, opened), gone, tell }, run, log);
  } catch (error) {
    log.debug({ err: error }, "client did not open its streams");
    if (!gone.aborted) await tell(internalError(error)).catch(() => undefined);
  }
  await connection.close();
}

/** Streams that must be open before the command runs. The first two versions have no resizing. */
function neededStreams({ stdin, stdout, stderr, tty }: CommandRequest, protocol: CommandProtocol): string[] {
  const resizes = protocol === "v4.channel.k8s.io" || protocol === "v3.channel.k8s.io";
  const asked = { error: true, stdin, stdout, stderr, resize: tty && resizes };
  return streamTypes.filter((type) => asked[type as keyof typeof asked]);
}

function streamsOf(request: CommandRequest, opened: ReadonlyMap<string, SpdyStream>): CommandStreams {
  const [stdin, stdout, stderr, resize] = ["stdin", "stdout", "stderr", "resize"].map((type) => opened.get(type));
  return {
    ...(request.stdin && stdin && { stdin }),
    ...(request.stdout && stdout && { stdout }),
    ...(request.stderr && stderr && { stderr }),
    tty: request.tty,
    sizes: request.tty && resize ? terminalSizes(resize) : noSizes(),
  };
}

async function untilComplete(complete: Promise<void>, gone: AbortSignal, clock: Clock): Promise<void> {
  const failed = Promise.withResolvers<never>();
  const onGone = () => failed.reject(abortError(gone));
  const timer = clock.after(creationMs, () =>
    failed.reject(new CodedError("deadline_exceeded", "timed out waiting for client to create streams")),
  );
  gone.addEventListener("abort", onGone, { once: true });
  try {
    if (gone.aborted) onGone();
    await Promise.race([complete, failed.promise]);
  } finally {
    timer.cancel();
    gone.removeEventListener("abort", onGone);
  }
}

function streamType(headers: Headers): string {
  return headers.get("streamtype") ?? "";
}
