import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Response } from "express";
import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { StreamEndpoint } from "../seams/runtime.ts";
import type { CommandRequest } from "../streams/remote-command.ts";
import type { StreamGate } from "../streams/spdy/stream-gate.ts";
import { splice } from "../streams/splice.ts";
import { sendText } from "./responses.ts";
import { type UpgradeRequest, type HandshakeResult, handshake } from "./handshake.ts";

/** The endpoint of a client. */
export interface StreamTarget {
  readonly endpoint: StreamEndpoint;
  /** The command that runs there; undefined for a port-forward. */
  readonly command?: CommandRequest;
  /** Decides about the client's SPDY streams; default: the gate of a command. */
  readonly gate?: StreamGate;
}

/** An upgraded connection with its upgrade request. */
export interface Upgrade {
  readonly socket: Duplex;
  /** Bytes after the request's header. */
  readonly head: Buffer;
}

/** A client that is being joined to an endpoint. */
export interface ProxiedStream extends StreamTarget, ClockAndLog {
  readonly request: IncomingMessage;
  readonly response: Response;
  readonly upgrade: Upgrade;
  /** Aborts when the client disconnects before the response, and when the server stops. */
  readonly signal: AbortSignal;
}

export type Upgraded = Extract<HandshakeResult, { kind: "upgraded" }>;

/** Timeout of the handshake with an endpoint, milliseconds: the same as a streaming server's. */
export const handshakeTimeoutMs = 30_000;
/** Time for which one side may continue after the other has ended, milliseconds. These protocols close both directions together, so this
 *  only limits the resources held by a vanished peer. */
const lingerMs = 10_000;

/** Requests the upgrade from a client's endpoint. @returns the upgraded connection; undefined if the endpoint refused,
 *  which is reported to the client, or if the client is gone. */
export async function requestUpgrade(joining: ProxiedStream, asking: UpgradeRequest): Promise<Upgraded | undefined> {
  const { endpoint, request, response, signal, clock, log } = joining;
  const answer = await handshake(endpoint, asking, clock.within(handshakeTimeoutMs, signal)).catch((error: unknown) => {
    log.warn({ path: pathOf(request), err: error }, "streaming endpoint does not respond");
    sendText(response, 500, `${messageOf(error)}\n`);
  });
  if (answer?.kind === "answered") await forwardResponse(answer.response, response, signal);
  if (answer?.kind !== "upgraded") return undefined;
  if (response.socket) return answer;
  answer.stream.destroy();
  return undefined;
}

/** Forwards a response that is not an upgrade: an error with its body; anything else is invalid. */
async function forwardResponse(from: IncomingMessage, to: Response, signal: AbortSignal): Promise<void> {
  const status = from.statusCode ?? 0;
  try {
    if (status < 400) return sendText(to, 500, `invalid upgrade response: status code ${status}\n`);
    to.status(status);
    for (const name of forwardedHeaders) {
      const value = from.headers[name];
      if (value !== undefined) to.set(name, value);
    }
    await pipeline(from, to, { signal });
  } catch {
    to.destroy();
  } finally {
    from.socket.destroy();
  }
}

const forwardedHeaders = [
  "content-type",
  "retry-after",
  "x-stream-protocol-version",
  "x-accepted-stream-protocol-versions",
];

/** Two joined connections. */
export interface Ends {
  readonly client: Duplex;
  readonly backend: Duplex;
}

/** Carries the bytes between two connections, until both have ended, one has been ended for ten seconds, or the signal aborts. Never
 *  throws. @param carry joins them, until its signal aborts. */
export async function copyStreams(
  { request, clock, log, signal }: ProxiedStream,
  ends: Ends,
  carry: (ends: Ends, signal: AbortSignal) => Promise<void> = spliceUntil(signal),
): Promise<void> {
  const enough = new AbortController();
  const endSoon = () => clock.after(lingerMs, () => enough.abort());
  const timers: ReturnType<typeof endSoon>[] = [];
  for (const side of [ends.client, ends.backend]) side.once("finish", () => timers.push(endSoon()));
  try {
    await carry(ends, enough.signal);
  } catch (error) {
    log.debug({ path: pathOf(request), why: messageOf(error) }, "stream was interrupted");
  } finally {
    for (const timer of timers) timer.cancel();
  }
}

function spliceUntil(stopped: AbortSignal): (ends: Ends, signal: AbortSignal) => Promise<void> {
  return ({ client, backend }, signal) => splice(client, backend, AbortSignal.any([stopped, signal]));
}

function pathOf({ url }: IncomingMessage): string | undefined {
  return url?.split("?", 1)[0];
}
