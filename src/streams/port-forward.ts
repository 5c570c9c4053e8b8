import type { Duplex } from "node:stream";
import { finished } from "node:stream/promises";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { ConnectPort } from "../seams/runtime.ts";
import { readBoundedText } from "./read-text.ts";
import type { SpdyClient } from "./spdy/client.ts";

/** The port-forward protocol over SPDY. */
export const forwardProtocol = "portforward.k8s.io";

/** Maximum size of a runtime's error message, bytes. */
const maxErrorBytes = 1 << 16;

/** One forwarded connection, on the protocol side. */
export interface ForwardedConnection {
  readonly port: number;
  /** The client's end of the connection. */
  readonly data: Duplex;
  /** Aborts when the client disconnects. */
  readonly gone: AbortSignal;
  /** Called with an error message for the client. */
  readonly onError: (text: string) => void;
  /** Called when the pod's end has sent all its data. */
  readonly onRemoteEnd?: () => void;
}

/** Forwards one connection between a client and a port of a pod until both sides have ended it, or one has aborted it; then
 *  destroys `data`.
 *  @throws if the client has aborted the connection: the runtime may then keep it a little longer. */
export type ForwardPort = (connection: ForwardedConnection) => Promise<void>;

/** Forwards connections to the address that `connect` connects to. A client gets an error message if the connection failed, or
 *  was aborted before it sent anything. A connection that is aborted later is only closed, because clients give up all their
 *  forwarded connections on an error. */
export function forwardTo(connect: ConnectPort, log: Logger): ForwardPort {
  return async ({ port, data, gone, onError, onRemoteEnd }) => {
    const signal = untilClosed(data, gone);
    let hasSentData = false;
    try {
      const remote = await connect(port, signal);
      remote.once("data", () => {
        hasSentData = true;
      });
      if (onRemoteEnd) remote.once("end", onRemoteEnd);
      await splice(data, remote, signal);
    } catch (error) {
      log.debug({ port, err: error }, "forwarded connection was interrupted");
      if (signal.aborted) throw error;
      if (!hasSentData) onError(`error forwarding port ${port}: ${messageOf(error)}`);
    } finally {
      data.destroy();
    }
  };
}

/** Time for a runtime to send its error message after it has ended a connection's data, milliseconds. */
const messageTimeoutMs = 5_000;

/** Forwards connections through a runtime's streaming server; a client gets the runtime's own error messages. */
export function relayForwards(runtime: SpdyClient, clock: Pick<Clock, "within">): ForwardPort {
  let connections = 0;
  return async ({ port, data, gone, onError, onRemoteEnd }) => {
    const signal = untilClosed(data, gone);
    const requestid = String(connections++);
    const open = (streamtype: string) =>
      runtime.open(
        new Map([
          ["streamtype", streamtype],
          ["port", String(port)],
          ["requestid", requestid],
        ]),
      );
    const errors = open("error");
    const reported = readBoundedText(errors.end(), maxErrorBytes).then((text) => text !== "" && onError(text));
    reported.catch(() => undefined);
    let hasEnded = false;
    try {
      const remote = open("data");
      remote.once("end", () => {
        hasEnded = true;
        onRemoteEnd?.();
      });
      await splice(data, remote, signal);
      await reported;
    } catch (error) {
      // containerd ends the data before it says that a port cannot be connected to, and kubectl aborts a connection whose data has ended.
      if (hasEnded) await untilAborted(reported, clock.within(messageTimeoutMs, gone)).catch(() => undefined);
      throw error;
    } finally {
      errors.destroy();
      data.destroy();
    }
  };
}

/** Returns a signal that aborts when the client disconnects or aborts this connection. */
function untilClosed(data: Duplex, gone: AbortSignal): AbortSignal {
  const closed = new AbortController();
  data.once("close", () => {
    if (!data.readableEnded || !data.writableFinished)
      closed.abort(new CodedError("cancelled", "the client closed the connection"));
  });
  return AbortSignal.any([gone, closed.signal]);
}

/** Pipes two byte streams into each other. Backpressure applies, so that no more is buffered than the streams' own windows. The end of one
 *  direction becomes a half-close; the other direction continues. If a stream fails after its readable side has ended (for example on a
 *  write after the peer closed), everything that it sent is still delivered. Takes ownership of both streams and destroys them when the
 *  promise settles. @returns when both directions have ended and everything is written. @throws the first stream's
 *  error, or AbortError when `signal` aborts. */
export async function splice(a: Duplex, b: Duplex, signal: AbortSignal): Promise<void> {
  const ends = Promise.all([untilEnded(a, b, signal), untilEnded(b, a, signal)]);
  a.pipe(b);
  b.pipe(a);
  try {
    await ends;
  } finally {
    a.destroy();
    b.destroy();
  }
}

/** Waits until both directions of a stream have ended. */
async function untilEnded(stream: Duplex, other: Duplex, signal: AbortSignal): Promise<void> {
  try {
    await finished(stream, { signal });
  } catch (error) {
    if (signal.aborted || !stream.readableEnded) throw error;
    // No reader is left for the other side's data: discards it and waits for its end.
    other.resume();
  }
}
