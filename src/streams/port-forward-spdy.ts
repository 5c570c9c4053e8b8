import type { Duplex } from "node:stream";
import type { Timer } from "../lib/clock.ts";
import type { CommandDeps } from "./command-spdy.ts";
import { creationMs } from "./patience.ts";
import { type ConnectPort, forward } from "./port-forward.ts";
import { finish } from "./remote-command.ts";
import { SpdyConnection } from "./spdy/connection.ts";
import type { Headers } from "./spdy/header-block.ts";
import type { SpdyStream } from "./spdy/stream.ts";

/** The port-forward protocol over SPDY. */
export const forwardProtocol = "portforward.k8s.io";

/** The two streams of a connection, as far as they stand. */
interface Pair {
  error?: SpdyStream;
  data?: SpdyStream;
  readonly expiry: Timer;
}

/** Serves the connections that a client forwards over one SPDY connection: each has an error stream and a data stream.
 *  Resolves when the client is gone and all connections are cut; never throws.
 *  @see https://github.com/kubernetes/cri-streaming (portforward) */
export async function forwardOverSpdy(
  socket: Duplex,
  connect: ConnectPort,
  { clock, log }: CommandDeps,
): Promise<void> {
  const pairs = new Map<string, Pair>();
  const running = new Set<Promise<void>>();
  const over = Promise.withResolvers<void>();
  const connection = new SpdyConnection({ socket, clock, taker: { wants, opened } });
  const { gone } = connection;

  function opened(stream: SpdyStream): void {
    const id = requestId(stream);
    const kind = streamType(stream.headers) === "error" ? "error" : "data";
    const pair = pairs.get(id) ?? { expiry: clock.after(creationMs, () => expire(id)) };
    if (pair[kind]) return void stream.destroy();
    pair[kind] = stream;
    pairs.set(id, pair);
    const { error, data } = pair;
    if (!error || !data) return;
    pair.expiry.cancel();
    pairs.delete(id);
    const work = serve(error, data).finally(() => running.delete(work));
    running.add(work);
  }

  function expire(id: string): void {
    const pair = pairs.get(id);
    pairs.delete(id);
    pair?.data?.destroy();
    pair?.error?.end("timed out waiting for streams");
  }

  async function serve(errors: SpdyStream, data: SpdyStream): Promise<void> {
    errors.resume();
    const port = portOf(data.headers) ?? 0;
    const text = await forward({ port, data, gone }, connect, log);
    if (gone.aborted) return;
    if (text !== undefined) errors.write(text);
    await finish(errors).catch(() => undefined);
    errors.destroy();
  }

  gone.addEventListener("abort", () => over.resolve(), { once: true });
  await over.promise;
  for (const { expiry } of pairs.values()) expiry.cancel();
  await Promise.all(running);
  await connection.close();
}

function wants(headers: Headers): boolean {
  return ["error", "data"].includes(streamType(headers)) && portOf(headers) !== undefined;
}

function streamType(headers: Headers): string {
  return headers.get("streamtype") ?? "";
}

function portOf(headers: Headers): number | undefined {
  const text = headers.get("port") ?? "";
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 0xffff ? port : undefined;
}

/** What the streams of a connection have in common. Old clients do not say: theirs follow one another, error stream first. */
function requestId({ id, headers }: SpdyStream): string {
  return headers.get("requestid") || `after ${streamType(headers) === "error" ? id : id - 2}`;
}
