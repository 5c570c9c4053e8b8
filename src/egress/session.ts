import { once } from "node:events";
import type { WebSocket } from "ws";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import { onAbort } from "../lib/service-group.ts";
import { type Carrier, type CarrierDeps, createCarrier } from "./carrier.ts";
import { decodeMessage, encodeMessage, type Message } from "./messages.ts";

export interface SessionDeps extends Pick<CarrierDeps, "leadsTo"> {
  readonly clock: Pick<Clock, "sleep">;
}

/** remotedialer's intervals, milliseconds: the peer gives up after a minute without a ping. */
const pingMs = 5_000;
const knownMs = 60_000;
/** Time without any message after which the server is considered dead, milliseconds. */
const silenceMs = 30_000;

/** Serves the connections that an API server dials through a tunnel, until the tunnel closes or the signal aborts. @throws CodedError
 *  unavailable if the server is silent for too long, or sends a malformed message. */
export async function serveSession(
  server: WebSocket,
  { leadsTo, clock }: SessionDeps,
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
  const send = (message: Message, sent?: () => void) => {
    messages += 1n;
    if (server.readyState === server.OPEN) server.send(encodeMessage(message, messages), () => sent?.());
  };
  const carrier = createCarrier({ leadsTo, send, unsent: () => server.bufferedAmount });
  server.on("message", (bytes: Buffer) => {
    // Messages already read are delivered even after the end: a connection opened then would never be closed.
    if (until.aborted) return;
    try {
      const message = decodeMessage(bytes);
      if (message) carrier.take(message);
    } catch (error) {
      fail(error);
    }
  });
  server.on("error", fail);
  void beat(server, { carrier, send, clock, fail }, until);
  await Promise.race([once(server, "close").catch(() => undefined), onAbort(until)]);
  over.abort();
  server.terminate();
  carrier.close();
  if (failure && !signal.aborted)
    throw new CodedError("unavailable", messageOf(failure.error), { cause: failure.error });
}

interface Beat extends Pick<SessionDeps, "clock"> {
  readonly carrier: Pick<Carrier, "known">;
  readonly send: (message: Message) => void;
  readonly fail: (error: unknown) => void;
}

/** Sends pings and the list of open connections (the server closes those not listed), and detects a silent server. */
async function beat(server: WebSocket, { carrier, send, clock, fail }: Beat, until: AbortSignal): Promise<void> {
  let silent = 0;
  for (const event of ["message", "ping", "pong"] as const) server.on(event, () => (silent = 0));
  for (let ms = pingMs; ; ms += pingMs) {
    await clock.sleep(pingMs, until).catch(() => undefined);
    if (until.aborted || server.readyState !== server.OPEN) return;
    silent += pingMs;
    if (silent > silenceMs)
      return fail(new CodedError("unavailable", `the server has sent nothing for ${silenceMs / 1000} s`));
    server.ping();
    if (ms % knownMs === 0) send({ type: "known", connections: carrier.known() });
  }
}
