import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import { CodedError } from "../lib/errors.ts";
import { relayCommand, relayProtocol } from "../streams/command-relay.ts";
import { serveCommandOverWebSocket, commandSubprotocols } from "../streams/command-websocket.ts";
import { forwardProtocol } from "../streams/port-forward-spdy.ts";
import { tunnelSubprotocol } from "../streams/port-forward-websocket.ts";
import type { CommandRequest } from "../streams/remote-command.ts";
import { withEarlyReplies } from "../streams/spdy/early-replies.ts";
import { acceptWebSocket, negotiateWebSocket } from "../streams/upgrade.ts";
import { tunnelStream } from "../streams/websocket/tunnel.ts";
import { sendText } from "./responses.ts";
import { handshake, refusalText, spdyUpgrade } from "./handshake.ts";
import { type ProxiedStream, requestUpgrade, handshakeTimeoutMs, copyStreams } from "./upgraded-connection.ts";

/** Serves a command over WebSocket to the client and over SPDY to the endpoint. The client is accepted before the endpoint is contacted;
 *  later errors become the command's status.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets */
export async function relayOverWebSocket(joining: ProxiedStream, command: CommandRequest): Promise<void> {
  const { endpoint, request, response, signal, clock, log } = joining;
  const subprotocol = negotiateWebSocket(request, commandSubprotocols);
  if (typeof subprotocol !== "string") return sendText(response, subprotocol.status, `${subprotocol.text}\n`);
  const connect = async (gone: AbortSignal): Promise<Duplex> => {
    const due = clock.within(handshakeTimeoutMs, gone);
    const answer = await handshake(endpoint, spdyUpgrade(relayProtocol), due);
    if (answer.kind === "upgraded") return answer.stream;
    throw new CodedError("unknown", `unable to upgrade connection: ${await refusalText(answer.response, due)}`);
  };
  const ws = await accept(joining, subprotocol);
  if (ws) await serveCommandOverWebSocket({ ws, subprotocol }, command, relayCommand(connect, signal), { clock, log });
}

/** Serves a port-forward over a SPDY connection within a WebSocket: the endpoint gets the SPDY connection. */
export async function tunnelOverWebSocket(joining: ProxiedStream): Promise<void> {
  const answer = await requestUpgrade(joining, spdyUpgrade(forwardProtocol));
  if (!answer) return;
  const ws = await accept(joining, tunnelSubprotocol);
  if (ws)
    await copyStreams(joining, { client: withEarlyReplies(tunnelStream(ws), joining.gate), backend: answer.stream });
  else answer.stream.destroy();
}

/** True if a WebSocket client offers SPDY within it. */
export function isTunnel(request: IncomingMessage): boolean {
  return negotiateWebSocket(request, [tunnelSubprotocol]) === tunnelSubprotocol;
}

async function accept(
  { request, response, upgrade }: ProxiedStream,
  subprotocol: string,
): Promise<WebSocket | undefined> {
  if (!response.socket) return undefined;
  response.detachSocket(response.socket);
  return acceptWebSocket({ request, ...upgrade }, subprotocol);
}
