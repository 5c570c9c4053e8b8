import { addAbortListener } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Response } from "express";
import type { WebSocket } from "ws";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { ConnectPort, RunCommand, StreamEndpoint } from "../seams/runtime.ts";
import { relayContainerCommand, relayProtocol } from "../streams/command-relay.ts";
import { commandProtocols, serveCommandOverSpdy } from "../streams/command-spdy.ts";
import { commandSubprotocols, serveCommandOverWebSocket } from "../streams/command-websocket.ts";
import type { SlotResult } from "../streams/forward-slots.ts";
import { serveForwardOverSpdy } from "../streams/port-forward-spdy.ts";
import {
  type ForwardSubprotocol,
  forwardSubprotocols,
  serveForwardOverWebSocket,
  tunnelSubprotocol,
} from "../streams/port-forward-websocket.ts";
import { type ForwardPort, forwardProtocol, forwardTo, relayForwards } from "../streams/port-forward.ts";
import type { CommandRequest, CommandRunner } from "../streams/remote-command.ts";
import { SpdyClient } from "../streams/spdy/client.ts";
import {
  type Refusal,
  type Upgrade,
  acceptSpdy,
  acceptWebSocket,
  isWebSocket,
  negotiateSpdy,
  negotiateWebSocket,
} from "../streams/upgrade.ts";
import { tunnelStream } from "../streams/websocket/tunnel.ts";
import { handshake, refusalText } from "./handshake.ts";
import { sendText } from "./responses.ts";

/** A client that requests a stream. */
export interface StreamClient extends ClockAndLog {
  readonly request: IncomingMessage;
  readonly response: Response;
  readonly upgrade: Upgrade;
  /** Aborts when the client disconnects before the response, and when the server stops. */
  readonly signal: AbortSignal;
}

/** Timeout of the handshake with an endpoint, milliseconds: the same as a streaming server's. */
const handshakeTimeoutMs = 30_000;

/** Runs a command for a client in the client's protocol. A runtime's streaming server is contacted over SPDY. A SPDY client gets
 *  the server's refusal as its response. A WebSocket client has been accepted by then, as in the kubelet, and gets the refusal as
 *  the command's status.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets */
export async function serveCommand(
  client: StreamClient,
  endpoint: StreamEndpoint | RunCommand,
  command: CommandRequest,
): Promise<void> {
  const { request } = client;
  if (isWebSocket(request)) {
    const subprotocol = negotiateWebSocket(request, commandSubprotocols);
    if (typeof subprotocol !== "string") return refuse(client, subprotocol);
    const run =
      typeof endpoint === "function" ? endpoint : relayContainerCommand((gone) => connect(client, endpoint, gone));
    const ws = await webSocketOf(client, subprotocol);
    if (ws) await serveCommandOverWebSocket({ ws, subprotocol }, command, run, client);
    return;
  }
  const protocol = negotiateSpdy(request, commandProtocols);
  if (typeof protocol !== "string") return refuse(client, protocol);
  const serve = (run: CommandRunner) =>
    serveCommandOverSpdy({ socket: spdyOf(client, protocol), protocol }, command, run, client);
  if (typeof endpoint === "function") return serve(endpoint);
  const runtime = await requestUpgrade(client, endpoint, relayProtocol);
  if (!runtime) return;
  await serve(relayContainerCommand(() => Promise.resolve(runtime)));
  runtime.destroy();
}

/** A port-forward to one pod. */
export interface PortForward {
  /** Ports of a WebSocket client; a SPDY client names the port of each connection. */
  readonly ports: readonly number[];
  readonly acquireSlot: (signal: AbortSignal) => Promise<SlotResult>;
}

/** Forwards connections to a pod for a client in the client's protocol, which may be SPDY within a WebSocket. */
export async function serveForward(
  client: StreamClient,
  endpoint: StreamEndpoint | ConnectPort,
  about: PortForward,
): Promise<void> {
  const { request, log } = client;
  const protocol = isWebSocket(request)
    ? negotiateWebSocket(request, forwardSubprotocols)
    : negotiateSpdy(request, [forwardProtocol]);
  if (typeof protocol !== "string") return refuse(client, protocol);
  if (typeof endpoint === "function") return forwardFor(client, protocol, about, forwardTo(endpoint, log));
  const socket = await requestUpgrade(client, endpoint, forwardProtocol);
  if (!socket) return;
  const runtime = new SpdyClient(socket);
  await forwardFor(client, protocol, about, relayForwards(runtime, client.clock), runtime.ended);
  runtime.close();
}

async function forwardFor(
  client: StreamClient,
  protocol: ForwardSubprotocol | typeof tunnelSubprotocol | typeof forwardProtocol,
  { ports, acquireSlot }: PortForward,
  forward: ForwardPort,
  runtimeGone?: AbortSignal,
): Promise<void> {
  const { upgrade, signal, clock } = client;
  using _ = addAbortListener(signal, () => upgrade.socket.destroy());
  const overSpdy = (socket: Duplex) => serveForwardOverSpdy({ socket, forward, acquireSlot, runtimeGone, clock });
  if (protocol === forwardProtocol) return await overSpdy(spdyOf(client, protocol));
  const ws = await webSocketOf(client, protocol);
  if (!ws) return;
  if (protocol === tunnelSubprotocol) return await overSpdy(tunnelStream(ws));
  await serveForwardOverWebSocket({ ws, subprotocol: protocol }, ports, forward, clock);
}

/** Connects to a runtime's streaming server. @throws its refusal. */
async function connect({ clock }: StreamClient, endpoint: StreamEndpoint, signal: AbortSignal): Promise<Duplex> {
  const due = clock.within(handshakeTimeoutMs, signal);
  const answer = await handshake(endpoint, relayProtocol, due);
  if (answer.kind === "upgraded") return answer.stream;
  throw new CodedError("unknown", `unable to upgrade connection: ${await refusalText(answer.response, due)}`);
}

/** Connects to a runtime's streaming server. @returns undefined if it refused, which is reported to the client, or if the client is gone. */
async function requestUpgrade(
  { request, response, signal, clock, log }: StreamClient,
  endpoint: StreamEndpoint,
  protocol: string,
): Promise<Duplex | undefined> {
  try {
    const answer = await handshake(endpoint, protocol, clock.within(handshakeTimeoutMs, signal));
    if (answer.kind === "answered") await forwardResponse(answer.response, response, signal);
    else if (response.socket) return answer.stream;
    else answer.stream.destroy();
  } catch (error) {
    log.warn({ path: request.url?.split("?", 1)[0], err: error }, "streaming endpoint does not respond");
    sendText(response, 500, `${messageOf(error)}\n`);
  }
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

function refuse({ response }: StreamClient, { status, text, headers = {} }: Refusal): void {
  sendText(response.set(headers), status, `${text}\n`);
}

/** Upgrades the client's connection to SPDY. */
function spdyOf({ response, upgrade }: StreamClient, protocol: string): Duplex {
  if (response.socket) response.detachSocket(response.socket);
  return acceptSpdy(upgrade, protocol);
}

/** Upgrades the client's connection to a WebSocket; undefined if the client is gone, or has been refused. */
async function webSocketOf(
  { request, response, upgrade }: StreamClient,
  subprotocol: string,
): Promise<WebSocket | undefined> {
  if (!response.socket) return undefined;
  response.detachSocket(response.socket);
  return acceptWebSocket(request, upgrade, subprotocol);
}
