import { once } from "node:events";
import type { WebSocket } from "ws";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import { onAbort } from "../lib/service-group.ts";
import { type ConnectionMultiplexer, type MultiplexerDeps, createMultiplexer } from "./multiplexer.ts";
import { decodeMessage, encodeMessage, type TunnelMessage } from "./messages.ts";

export interface SessionDeps extends Pick<MultiplexerDeps, "resolveTarget"> {
  readonly clock: Pick<Clock, "sleep">;
}

/** remotedialer's intervals, milliseconds: the peer gives up after a minute without a ping. */
const pingIntervalMs = 5_000;
const connectionListIntervalMs = 60_000;
/** Time without any message after which the server is considered dead, milliseconds. */
const silenceTimeoutMs = 30_000;

/** Serves the connections that an API server dials through a tunnel, until the tunnel closes or the signal aborts. @throws CodedError
 *  unavailable if the server is silent for too long, or sends a malformed message. */
export async function serveSession(
  server: WebSocket,
  { resolveTarget, clock }: SessionDeps,
  signal: AbortSignal,
): Promise<void> {
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  let failure: { readonly error: unknown } | undefined;
  const fail = (error: unknown) => {
    failure ??= { error };
    over.abort();
  };
  let messages = 0n;
  const send = (message: TunnelMessage, sent?: () => void) => {
    messages += 1n;
    if (server.readyState === server.OPEN) server.send(encodeMessage(message, messages), () => sent?.());
  };
  const multiplexer = createMultiplexer({ resolveTarget, send, unsentBytes: () => server.bufferedAmount });
  server.on("message", (bytes: Buffer) => {
    // Messages already read are delivered even after the end: a connection opened then would never be closed.
    if (until.aborted) return;
    try {
      const message = decodeMessage(bytes);
      if (message) multiplexer.handle(message);
    } catch (error) {
      fail(error);
    }
  });
  server.on("error", fail);
  void sendHeartbeats(server, { multiplexer, send, clock, fail }, until);
  await Promise.race([once(server, "close").catch(() => undefined), onAbort(until)]);
  over.abort();
  server.terminate();
  multiplexer.close();
  if (failure && !signal.aborted)
    throw new CodedError("unavailable", messageOf(failure.error), { cause: failure.error });
}

interface HeartbeatDeps extends Pick<SessionDeps, "clock"> {
  readonly multiplexer: Pick<ConnectionMultiplexer, "connections">;
  readonly send: (message: TunnelMessage) => void;
  readonly fail: (error: unknown) => void;
}

/** Sends pings and the list of open connections (the server closes those not listed), and detects a silent server. */
async function sendHeartbeats(
  server: WebSocket,
  { multiplexer, send, clock, fail }: HeartbeatDeps,
  until: AbortSignal,
): Promise<void> {
  let silentMs = 0;
  for (const event of ["message", "ping", "pong"] as const) server.on(event, () => (silentMs = 0));
  for (let ms = pingIntervalMs; ; ms += pingIntervalMs) {
    await clock.sleep(pingIntervalMs, until).catch(() => undefined);
    if (until.aborted || server.readyState !== server.OPEN) return;
    silentMs += pingIntervalMs;
    if (silentMs > silenceTimeoutMs)
      return fail(new CodedError("unavailable", `the server has sent nothing for ${silenceTimeoutMs / 1000} s`));
    server.ping();
    if (ms % connectionListIntervalMs === 0) send({ kind: "known", connections: multiplexer.connections() });
  }
}
