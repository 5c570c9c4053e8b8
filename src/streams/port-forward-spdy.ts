import type { Duplex } from "node:stream";
import { addAbortListener } from "node:events";
import type { Clock, Timer } from "../lib/clock.ts";
import { type ForwardSlot, type SlotResult, releaseDelayMs } from "./forward-slots.ts";
import { lingerTimeoutMs, streamCreationTimeoutMs } from "./timeouts.ts";
import type { ForwardPort } from "./port-forward.ts";
import { endOutput } from "./remote-command.ts";
import { SpdyConnection } from "./spdy/connection.ts";
import type { SpdyStream } from "./spdy/stream.ts";
import type { Headers } from "./spdy/header-block.ts";

/** Maximum number of concurrent connections of one client, including incomplete ones. */
const maxConnections = 256;

/** Connections that a client forwards over one SPDY connection. */
export interface ForwardSession {
  readonly socket: Duplex;
  readonly forward: ForwardPort;
  readonly acquireSlot: (signal: AbortSignal) => Promise<SlotResult>;
  /** Aborts when the runtime can forward no more connections: open ones have ten seconds to end. */
  readonly runtimeGone?: AbortSignal | undefined;
  readonly clock: Clock;
}

/** The two streams of a connection; undefined until opened. */
interface StreamPair {
  error?: SpdyStream;
  data?: SpdyStream;
  readonly slot: ForwardSlot;
  readonly expiry: Timer;
}

/** Serves the connections that a client forwards over one SPDY connection: each has an error stream and a data stream. A
 *  connection for which no slot is free only gets an error on its error stream. Resolves when the client is gone and all
 *  connections are closed; never throws.
 *  @see https://github.com/kubernetes/cri-streaming (portforward) */
export async function serveForwardOverSpdy({
  socket,
  forward,
  acquireSlot,
  runtimeGone,
  clock,
}: ForwardSession): Promise<void> {
  const pairs = new Map<string, StreamPair>();
  const running = new Set<Promise<void>>();
  /** Slot for a new connection whose first stream is being opened. */
  let acquired: SlotResult | undefined;
  const connection: SpdyConnection = new SpdyConnection({
    socket,
    clock,
    handler: { accepts, onOpened, onReset: discard },
  });
  const { gone } = connection;

  async function accepts(headers: SpdyStream["headers"], id: number): Promise<boolean> {
    const about = parseForwardHeaders(id, headers);
    if (!about) return false;
    const pair = pairs.get(about.connection);
    if (pair) return !pair[about.kind];
    if (pairs.size + running.size >= maxConnections) return false;
    acquired = await acquireSlot(gone);
    return acquired.kind === "taken" || about.kind === "error";
  }

  function onOpened(stream: SpdyStream): void {
    const { kind, connection: name } = headersOf(stream);
    const pair = pairs.get(name) ?? begin(name, stream);
    if (!pair) return;
    pair[kind] = stream;
    const { error, data } = pair;
    if (!error || !data) return;
    pair.expiry.cancel();
    pairs.delete(name);
    const work = serve(error, data, pair.slot).finally(() => running.delete(work));
    running.add(work);
  }

  /** Begins a connection with its first stream, or sends the reason why there is none. */
  function begin(name: string, first: SpdyStream): StreamPair | undefined {
    const result = acquired;
    acquired = undefined;
    if (result?.kind !== "taken") return void first.resume().end(result?.text);
    const expiry = clock.after(streamCreationTimeoutMs, () => remove(name, "timed out waiting for streams"));
    const pair = { slot: result.slot, expiry };
    pairs.set(name, pair);
    return pair;
  }

  /** Discards an incomplete connection after its client has reset one of its streams. */
  function discard(stream: SpdyStream): void {
    const { kind, connection: name } = headersOf(stream);
    if (pairs.get(name)?.[kind] === stream) remove(name);
  }

  /** Removes an incomplete connection. @param text for the client. */
  function remove(name: string, text?: string): void {
    const pair = pairs.get(name);
    pairs.delete(name);
    pair?.expiry.cancel();
    pair?.slot.release(0);
    pair?.data?.destroy();
    if (text !== undefined) pair?.error?.resume().end(text);
  }

  async function serve(errors: SpdyStream, data: SpdyStream, slot: ForwardSlot): Promise<void> {
    errors.resume();
    try {
      await forward({ port: headersOf(data).port, data, gone, onError: (text) => errors.end(text) });
      slot.release(0);
    } catch {
      slot.release(releaseDelayMs);
    }
    if (!gone.aborted) await endOutput(errors).catch(() => undefined);
    errors.destroy();
  }

  const ended = Promise.withResolvers<void>();
  using _gone = addAbortListener(gone, () => ended.resolve());
  using _runtimeGone = runtimeGone && addAbortListener(runtimeGone, () => ended.resolve());
  await ended.promise;
  const linger = clock.after(lingerTimeoutMs, () => void connection.close());
  await Promise.all(running);
  linger.cancel();
  await connection.close();
  for (const name of pairs.keys()) remove(name);
  if (acquired?.kind === "taken") acquired.slot.release(0);
}

function headersOf({ id, headers }: SpdyStream): ForwardHeaders {
  const about = parseForwardHeaders(id, headers);
  if (!about) throw new TypeError("stream without port-forward headers");
  return about;
}

/** Headers of a port-forward's stream: each connection has two with the same name, one for data and one for errors. */
interface ForwardHeaders {
  readonly kind: "error" | "data";
  readonly port: number;
  /** Name shared by the two streams of a connection. */
  readonly connection: string;
}

/** Maximum length of a connection's name, bytes: clients use counters or random numbers. */
const maxNameLength = 256;

/** Parses a stream's headers; undefined if they are not those of a port-forward. Clients without connection names open the streams of a
 *  connection one after the other, error stream first.
 *  @see https://github.com/kubernetes/cri-streaming (portforward) */
function parseForwardHeaders(id: number, headers: Headers): ForwardHeaders | undefined {
  const kind = headers.get("streamtype");
  const port = parsePort(headers.get("port") ?? "");
  if ((kind !== "error" && kind !== "data") || port === undefined) return undefined;
  const connection = headers.get("requestid") || `after ${kind === "error" ? id : id - 2}`;
  return connection.length > maxNameLength ? undefined : { kind, port, connection };
}

function parsePort(text: string): number | undefined {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 0xffff ? port : undefined;
}
