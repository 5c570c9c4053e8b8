import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { lingerTimeoutMs } from "./timeouts.ts";

/** The connection of a request to upgrade to another protocol. */
export interface Upgrade {
  readonly socket: Duplex;
  /** Bytes after the request's header. */
  readonly head: Buffer;
}

/** Response to a request whose upgrade is refused. */
export interface Refusal {
  readonly status: number;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Maximum length of a received WebSocket message, bytes: the same as the kubelet's server. */
const maxMessageBytes = 32 << 20;

/** Maximum number of unsent pongs; further pings are not answered. */
const maxPendingPongs = 16;

/** True if a request asks for a WebSocket; any other upgrade is treated as SPDY. */
export function isWebSocket({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() === "websocket" && requestsUpgrade(headers);
}

/** Returns the client's first SPDY subprotocol that is among `supported`, or the refusal if there is none.
 *  @see https://github.com/kubernetes/streaming (httpstream.Handshake) */
export function negotiateSpdy<P extends string>({ headers }: IncomingMessage, supported: readonly P[]): P | Refusal {
  const name = "X-Stream-Protocol-Version";
  const offered = list(headers["x-stream-protocol-version"]);
  if (offered.length === 0) return { status: 400, text: `unable to upgrade: header ${name} names no protocol` };
  const chosen = firstSupported(offered, supported);
  if (chosen === undefined) {
    const text = `unable to upgrade: unable to negotiate protocol: client supports [${offered.join(" ")}], server accepts [${supported.join(" ")}]`;
    return { status: 403, text, headers: { "X-Accepted-Stream-Protocol-Versions": supported.join(", ") } };
  }
  if (!requestsUpgrade(headers) || !headers.upgrade?.toLowerCase().includes("spdy/3.1"))
    return { status: 400, text: "unable to upgrade: missing upgrade headers in request" };
  return chosen;
}

/** Returns the client's first WebSocket subprotocol that is among `supported`; "" for a client that requests none. */
export function negotiateWebSocket<P extends string>(
  { headers }: IncomingMessage,
  supported: readonly P[],
): P | Refusal {
  const offered = list(headers["sec-websocket-protocol"]);
  const chosen = firstSupported(offered.length === 0 ? [""] : offered, supported);
  if (chosen !== undefined) return chosen;
  const text = `requested protocol(s) are not supported: [${offered.join(" ")}]; supports [${supported.join(" ")}]`;
  return { status: 403, text };
}

/** Upgrades to SPDY. @returns the connection, beginning with the first byte after the request. */
export function acceptSpdy({ socket, head }: Upgrade, protocol: string): Duplex {
  const lines = ["Connection: Upgrade", "Upgrade: SPDY/3.1", `X-Stream-Protocol-Version: ${protocol}`];
  socket.on("error", () => undefined);
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join("\r\n")}\r\n\r\n`);
  if (head.length > 0) socket.unshift(head);
  return socket;
}

/** Upgrades to a WebSocket. @returns undefined if the request was not a valid handshake, and has been refused. */
export async function acceptWebSocket(
  request: IncomingMessage,
  { socket, head }: Upgrade,
  protocol: string,
): Promise<WebSocket | undefined> {
  const opened = Promise.withResolvers<WebSocket | undefined>();
  const options = {
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: maxMessageBytes,
    skipUTF8Validation: true,
    autoPong: false,
    closeTimeout: lingerTimeoutMs,
  };
  const server = new WebSocketServer(options);
  server.on("error", () => undefined);
  // The library considers "SPDY/3.1+…" malformed because of the slash, so it does not see the negotiated protocol.
  delete request.headers["sec-websocket-protocol"];
  if (protocol !== "") server.once("headers", (headers) => headers.push(`Sec-WebSocket-Protocol: ${protocol}`));
  socket.once("close", () => opened.resolve(undefined));
  server.handleUpgrade(request, socket, head, (ws) => {
    ws.on("error", () => undefined);
    let unsent = 0;
    ws.on("ping", (data) => {
      if (unsent >= maxPendingPongs) return;
      unsent += 1;
      ws.pong(data, false, () => void (unsent -= 1));
    });
    // Paused until a listener is attached: messages without a listener would be lost.
    ws.pause();
    opened.resolve(ws);
  });
  return opened.promise;
}

function requestsUpgrade({ connection }: IncomingMessage["headers"]): boolean {
  return connection?.toLowerCase().includes("upgrade") ?? false;
}

function firstSupported<P extends string>(offered: readonly string[], supported: readonly P[]): P | undefined {
  for (const name of offered) {
    const found = supported.find((candidate) => candidate === name);
    if (found !== undefined) return found;
  }
  return undefined;
}

function list(value: string | string[] | undefined): string[] {
  const text = Array.isArray(value) ? value.join(",") : (value ?? "");
  return text
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}
