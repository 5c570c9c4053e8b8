import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Response } from "express";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Endpoint } from "../seams/runtime.ts";
import type { CommandRequest } from "../streams/remote-command.ts";
import type { StreamGate } from "../streams/spdy/stream-gate.ts";
import { splice } from "../streams/splice.ts";
import { sendText } from "./answer.ts";
import { type Asking, type HandshakeAnswer, handshake } from "./handshake.ts";

/** The other side that a client is joined to. */
export interface Joined {
  readonly endpoint: Endpoint;
  /** The command that runs there, unless ports are forwarded. */
  readonly command?: CommandRequest;
  /** Decides about the SPDY streams that the client opens there; without one, that of a command does. */
  readonly gate?: StreamGate;
}

/** A connection that has left HTTP, as it came with the request that asks for another protocol. */
export interface Upgrade {
  readonly socket: Duplex;
  /** Bytes that came after the request's head. */
  readonly head: Buffer;
}

/** A client that is being joined to an endpoint. */
export interface Joining extends Joined {
  readonly request: IncomingMessage;
  readonly response: Response;
  readonly upgrade: Upgrade;
  /** Aborts when the client goes away before it has been answered, and when the server stops. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly log: Logger;
}

export type Upgraded = Extract<HandshakeAnswer, { is: "upgraded" }>;

/** How long an endpoint may take to answer the handshake, milliseconds: a streaming server's own patience. */
export const handshakeMs = 30_000;
/** How long the other side may go on once one side has said all it has to say, milliseconds. The protocols that run here
 *  close both directions together, so this only bounds what a vanished peer can hold. */
const lingerMs = 10_000;

/** Asks a client's endpoint for another protocol.
 *  @returns the endpoint's consent; undefined when there is none, or no client any more: it has been told why. */
export async function askEndpoint(joining: Joining, asking: Asking): Promise<Upgraded | undefined> {
  const { endpoint, request, response, signal, clock, log } = joining;
  const answer = await handshake(endpoint, asking, clock.within(handshakeMs, signal)).catch((error: unknown) => {
    log.warn({ path: pathOf(request), err: error }, "streaming endpoint does not answer");
    sendText(response, 500, `${messageOf(error)}\n`);
  });
  if (answer?.is === "answered") await passOn(answer.response, response, signal);
  if (answer?.is !== "upgraded") return undefined;
  if (response.socket) return answer;
  answer.stream.destroy();
  return undefined;
}

/** Passes an answer on that is no upgrade: an error with its body; anything else is not an answer to our question. */
async function passOn(from: IncomingMessage, to: Response, signal: AbortSignal): Promise<void> {
  const status = from.statusCode ?? 0;
  try {
    if (status < 400) return sendText(to, 500, `invalid upgrade response: status code ${status}\n`);
    to.status(status);
    for (const name of passedHeaders) {
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

const passedHeaders = [
  "content-type",
  "retry-after",
  "x-stream-protocol-version",
  "x-accepted-stream-protocol-versions",
];

/** Two connections that are joined. */
export interface Ends {
  readonly client: Duplex;
  readonly backend: Duplex;
}

/** Lets the bytes run between two connections, until both are done, one has been for ten seconds or the signal aborts. Never throws.
 *  @param carry joins them, until its signal aborts. */
export async function run(
  { request, clock, log, signal }: Joining,
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
    log.debug({ path: pathOf(request), why: messageOf(error) }, "stream broken off");
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
