import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Response } from "express";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Endpoint } from "../seams/runtime.ts";
import { withEarlyReplies } from "../streams/spdy/early-replies.ts";
import type { StreamGate } from "../streams/spdy/stream-gate.ts";
import { splice } from "../streams/splice.ts";
import { sendText } from "./answer.ts";
import { handshake } from "./handshake.ts";

/** An endpoint, and what decides about the SPDY streams that a client opens there; without, the client has a command. */
export interface GatedEndpoint extends Endpoint {
  readonly gate?: StreamGate;
}

/** Joins the client of a request to an endpoint; resolves when both are done with each other. */
export type Join = (
  endpoint: GatedEndpoint,
  request: IncomingMessage,
  response: Response,
  signal: AbortSignal,
) => Promise<void>;

/** A connection that has left HTTP, as it came with the request that asks for another protocol. */
export interface Upgrade {
  readonly socket: Duplex;
  /** Bytes that came after the request's head. */
  readonly head: Buffer;
}

export interface JoinDeps {
  /** The upgrade that a request came with; undefined for an ordinary request. */
  readonly upgradeOf: (request: IncomingMessage) => Upgrade | undefined;
  readonly clock: Clock;
  readonly log: Logger;
}

/** How long an endpoint may take to answer the handshake, milliseconds: a streaming server's own patience. */
const handshakeMs = 30_000;
/** How long the other side may go on once one side has said all it has to say, milliseconds. The protocols that run here
 *  close both directions together, so this only bounds what a vanished peer can hold. */
const lingerMs = 10_000;

/** Asks the endpoint for what the client asked for, passes its answer on, and lets the bytes run.
 *  @see https://kubernetes.io/docs/concepts/architecture/cri/ */
export function createJoin({ upgradeOf, clock, log }: JoinDeps): Join {
  return async (endpoint, request, response, signal) => {
    const upgrade = upgradeOf(request);
    if (!upgrade) return sendText(response, 500, "Upgrade request required\n");
    const answer = await handshake(endpoint, request, clock.within(handshakeMs, signal)).catch((error: unknown) => {
      log.warn({ path: request.url?.split("?", 1)[0], err: error }, "streaming endpoint does not answer");
      sendText(response, 500, `${messageOf(error)}\n`);
    });
    if (!answer) return;
    if (answer.is === "answered") return passOn(answer.response, response, signal);
    if (!response.socket) return void answer.stream.destroy();
    response.detachSocket(response.socket);
    upgrade.socket.write(headOf(answer.response));
    if (upgrade.head.length > 0) upgrade.socket.unshift(upgrade.head);
    const path = request.url?.split("?", 1)[0];
    const { upgrade: protocol = "" } = answer.response.headers;
    const client =
      protocol.toLowerCase() === "spdy/3.1" ? withEarlyReplies(upgrade.socket, endpoint.gate) : upgrade.socket;
    await lingering(clock, client, answer.stream, signal).catch((error: unknown) => {
      log.debug({ path, why: messageOf(error) }, "stream broken off");
    });
  };
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

/** The answer's head, as it came. */
function headOf({ statusMessage, rawHeaders }: IncomingMessage): string {
  const lines = [`HTTP/1.1 101 ${statusMessage || "Switching Protocols"}`];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) lines.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}

async function lingering(clock: Clock, client: Duplex, backend: Duplex, signal: AbortSignal): Promise<void> {
  const enough = new AbortController();
  const endSoon = () => clock.after(lingerMs, () => enough.abort());
  const timers: ReturnType<typeof endSoon>[] = [];
  for (const side of [client, backend]) side.once("finish", () => timers.push(endSoon()));
  try {
    await splice(client, backend, AbortSignal.any([signal, enough.signal]));
  } finally {
    for (const timer of timers) timer.cancel();
  }
}
