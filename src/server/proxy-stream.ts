import type { IncomingMessage } from "node:http";
import type { Response } from "express";
import type { ClockAndLog } from "../lib/log.ts";
import { connectionLost, internalError, statusBytes } from "../streams/exit-status.ts";
import { withEarlyReplies } from "../streams/spdy/early-replies.ts";
import { spliceCommand } from "../streams/splice-command.ts";
import { isWebSocket } from "../streams/upgrade.ts";
import { sendText } from "./responses.ts";
import { forwardedUpgrade } from "./handshake.ts";
import {
  type StreamTarget,
  type ProxiedStream,
  type Upgrade,
  type Upgraded,
  requestUpgrade,
  copyStreams,
} from "./upgraded-connection.ts";
import { isTunnel, relayOverWebSocket, tunnelOverWebSocket } from "./web-sockets.ts";
import { addAbortListener } from "node:events";

/** Joins the client of a request to an endpoint; resolves when both have finished. */
export type ProxyStream = (
  to: StreamTarget,
  request: IncomingMessage,
  response: Response,
  signal: AbortSignal,
) => Promise<void>;

export interface ProxyStreamDeps extends ClockAndLog {
  /** The upgrade of a request; undefined for an ordinary request. */
  readonly upgradeOf: (request: IncomingMessage) => Upgrade | undefined;
}

/** Forwards the client's upgrade request to the endpoint, returns the response, and joins the streams. If a WebSocket client meets an
 *  endpoint that may not support WebSocket, the protocol is translated, as by the kubelet.
 *  @see https://kubernetes.io/docs/concepts/architecture/cri/ */
export function createProxyStream({ upgradeOf, clock, log }: ProxyStreamDeps): ProxyStream {
  return async (to, request, response, signal) => {
    const upgrade = upgradeOf(request);
    if (!upgrade) return sendText(response, 500, "Upgrade request required\n");
    const joining: ProxiedStream = { ...to, request, response, upgrade, signal, clock, log };
    const translated = isWebSocket(request) && !to.endpoint.webSockets;
    if (translated && to.command) return relayOverWebSocket(joining, to.command);
    if (translated && isTunnel(request)) return tunnelOverWebSocket(joining);
    const answer = await requestUpgrade(joining, forwardedUpgrade(request));
    if (answer) await forwardUpgrade(joining, answer);
  };
}

/** Forwards the endpoint's upgrade response and the streams. A SPDY client always gets its command's result. */
async function forwardUpgrade(joining: ProxiedStream, { response: consent, stream }: Upgraded): Promise<void> {
  const { response, upgrade, command, gate, signal } = joining;
  const { socket, head } = upgrade;
  if (response.socket) response.detachSocket(response.socket);
  socket.write(headOf(consent));
  if (head.length > 0) socket.unshift(head);
  const { upgrade: protocol = "", "x-stream-protocol-version": version } = consent.headers;
  if (protocol.toLowerCase() !== "spdy/3.1") return copyStreams(joining, { client: socket, backend: stream });
  const ends = { client: withEarlyReplies(socket, gate), backend: stream };
  if (!command) return copyStreams(joining, ends);
  const loss = statusBytes(internalError(connectionLost()), version === "v4.channel.k8s.io");
  using _ = addAbortListener(signal, () => stream.destroy());
  await copyStreams(joining, ends, ({ client, backend }, enough) => spliceCommand(client, backend, loss, enough));
}

/** The response's header, unchanged. */
function headOf({ statusMessage, rawHeaders }: IncomingMessage): string {
  const lines = [`HTTP/1.1 101 ${statusMessage || "Switching Protocols"}`];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) lines.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}
