import type { Duplex } from "node:stream";
import type { Timer } from "../lib/clock.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { type ForwardHeaders, parseForwardHeaders } from "./forward-headers.ts";
import { streamCreationTimeoutMs } from "./timeouts.ts";
import { type ConnectPort, forwardConnection } from "./port-forward.ts";
import { endOutput } from "./remote-command.ts";
import { SpdyConnection } from "./spdy/connection.ts";
import type { SpdyStream } from "./spdy/stream.ts";

/** The port-forward protocol over SPDY. */
export const forwardProtocol = "portforward.k8s.io";

/** Maximum number of concurrent connections of one client, including incomplete ones. */
const maxConnections = 256;

/** The two streams of a connection, as far as they are open. */
interface StreamPair {
  error?: SpdyStream;
  data?: SpdyStream;
  readonly expiry: Timer;
}

/** Serves the connections that a client forwards over one SPDY connection: each has an error stream and a data stream. Resolves when the
 *  client is gone and all connections are closed; never throws.
 *  @see https://github.com/kubernetes/cri-streaming (portforward) */
export async function serveForwardOverSpdy(
  socket: Duplex,
  connect: ConnectPort,
  { clock, log }: ClockAndLog,
): Promise<void> {
  const pairs = new Map<string, StreamPair>();
  const running = new Set<Promise<void>>();
  const over = Promise.withResolvers<void>();
  const connection = new SpdyConnection({
    socket,
    clock,
    handler: {
      accepts(headers, id) {
        const about = parseForwardHeaders(id, headers);
        return !!about && (pairs.has(about.connection) || pairs.size + running.size < maxConnections);
      },
      onOpened,
      onReset: discard,
    },
  });
  const { gone } = connection;

  function onOpened(stream: SpdyStream): void {
    const { kind, connection: name } = headersOf(stream);
    const pair = pairs.get(name) ?? { expiry: clock.after(streamCreationTimeoutMs, () => expire(name)) };
    if (pair[kind]) return void stream.destroy();
    pair[kind] = stream;
    pairs.set(name, pair);
    const { error, data } = pair;
    if (!error || !data) return;
    pair.expiry.cancel();
    pairs.delete(name);
    const work = serve(error, data).finally(() => running.delete(work));
    running.add(work);
  }

  /** An incomplete connection whose client has reset it is discarded. */
  function discard(stream: SpdyStream): void {
    const { kind, connection: name } = headersOf(stream);
    const pair = pairs.get(name);
    if (pair?.[kind] !== stream) return;
    pair.expiry.cancel();
    pairs.delete(name);
  }

  function expire(name: string): void {
    const pair = pairs.get(name);
    pairs.delete(name);
    pair?.data?.destroy();
    pair?.error?.end("timed out waiting for streams");
  }

  async function serve(errors: SpdyStream, data: SpdyStream): Promise<void> {
    errors.resume();
    const { port } = headersOf(data);
    const text = await forwardConnection({ port, data, gone }, connect, log);
    if (gone.aborted) return;
    if (text !== undefined) errors.write(text);
    await endOutput(errors).catch(() => undefined);
    errors.destroy();
  }

  gone.addEventListener("abort", () => over.resolve(), { once: true });
  await over.promise;
  for (const { expiry } of pairs.values()) expiry.cancel();
  await Promise.all(running);
  await connection.close();
}

/** Headers of an accepted stream. */
function headersOf({ id, headers }: SpdyStream): ForwardHeaders {
  const about = parseForwardHeaders(id, headers);
  if (!about) throw new TypeError("stream without port-forward headers");
  return about;
}
