import { once } from "node:events";
import { type IncomingMessage, request as httpRequest } from "node:http";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { WebSocket } from "ws";
import type { Clock } from "../../../src/lib/clock.ts";
import type { StreamEndpoint } from "../../../src/seams/runtime.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type StreamServer, createStreamServer } from "../../fakes/stream-server.ts";
import { never } from "../../fakes/signals.ts";
import { type SpdyClient, spdyClient } from "../../fakes/spdy-client.ts";

/** A stream server without log output. */
export function startServer(clock: Clock = fakeClock()): StreamServer {
  return createStreamServer(clock);
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** The endpoint's response to a request; upgraded when it leaves HTTP. */
export async function ask(
  endpoint: StreamEndpoint,
  headers: Readonly<Record<string, string>>,
  method = "POST",
): Promise<Answer & { readonly upgraded?: Duplex }> {
  const connection = await endpoint.dial(never);
  const request = httpRequest({
    createConnection: () => connection,
    path: endpoint.path,
    headers: { host: endpoint.host, ...headers },
    method,
  });
  request.end();
  const answered = Promise.withResolvers<Answer & { readonly upgraded?: Duplex }>();
  request.once("error", answered.reject);
  request.once("upgrade", (response, upgraded, head) => {
    if (head.length > 0) upgraded.unshift(head);
    answered.resolve({ status: response.statusCode ?? 0, headers: response.headers, body: "", upgraded });
  });
  request.once("response", (response) => {
    text(response).then(
      (body) => answered.resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
      answered.reject,
    );
  });
  return answered.promise;
}

/** Request headers of a client that wants SPDY. */
export function spdyHeaders(...protocols: readonly string[]): Record<string, string> {
  return { connection: "Upgrade", upgrade: "SPDY/3.1", "x-stream-protocol-version": protocols.join(", ") };
}

/** A SPDY client of an endpoint. */
export async function dialSpdy(endpoint: StreamEndpoint, protocol = "v4.channel.k8s.io"): Promise<SpdyClient> {
  const { upgraded, status, body } = await ask(endpoint, spdyHeaders(protocol));
  if (!upgraded) throw new Error(`not upgraded: ${status} ${body}`);
  return spdyClient(upgraded);
}

/** A WebSocket client that collects messages by channel, as bytes and in order. */
export interface WebSocketClient {
  readonly ws: WebSocket;
  /** Each message: its first byte, and the rest. */
  readonly messages: { readonly channel: number; readonly data: Buffer; readonly isBinary: boolean }[];
  send(channel: number, data: Buffer | string): void;
  /** Everything received on a channel so far. */
  text(channel: number): string;
  /** Resolves with the status of the server's close message. */
  readonly closed: Promise<number>;
}

export async function dialWebSocket(
  endpoint: StreamEndpoint,
  ...protocols: readonly string[]
): Promise<WebSocketClient> {
  const connection = await endpoint.dial(never);
  const ws = new WebSocket(`ws://${endpoint.host}${endpoint.path}`, [...protocols], {
    createConnection: () => connection as never,
    perMessageDeflate: false,
  });
  const messages: WebSocketClient["messages"] = [];
  ws.on("message", (message: Buffer, isBinary) => {
    messages.push({ channel: message[0] ?? -1, data: message.subarray(1), isBinary });
  });
  const closed = once(ws, "close").then(([code]) => code as number);
  closed.catch(() => undefined);
  await once(ws, "open");
  return {
    ws,
    messages,
    send: (channel, data) => ws.send(Buffer.concat([Buffer.from([channel]), Buffer.from(data)])),
    text: (channel) =>
      Buffer.concat(messages.filter((message) => message.channel === channel).map(({ data }) => data)).toString(),
    closed,
  };
}

/** Waits until a condition holds. */
export async function until(holds: () => boolean): Promise<void> {
  for (let turn = 0; !holds(); turn++) {
    if (turn > 1_000_000) throw new Error("it never came true");
    await new Promise(setImmediate);
  }
}
