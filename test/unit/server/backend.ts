import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, type RequestListener, createServer } from "node:http";
import { request } from "node:https";
import { type Socket, connect } from "node:net";
import type { Duplex } from "node:stream";
import type { TestContext } from "node:test";
import type { StreamEndpoint } from "../../../src/seams/runtime.ts";
import { type Running, adminToken } from "./harness.ts";

/** Request headers of a SPDY client. */
export const spdy = { connection: "Upgrade", upgrade: "SPDY/3.1", "x-stream-protocol-version": "v4.channel.k8s.io" };

export const spdyForward = { ...spdy, "x-stream-protocol-version": "portforward.k8s.io" };

/** Request headers of a WebSocket client. */
export const webSocket = {
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
  "sec-websocket-version": "13",
};

export interface Backend {
  readonly endpoint: StreamEndpoint;
  readonly requests: IncomingMessage[];
  readonly connections: Socket[];
  /** The server's ends of the streams. */
  readonly dialed: Socket[];
}

/** A streaming server like a runtime's: accepts every upgrade and passes the connection to `serve`. */
export async function backend(
  t: TestContext,
  serve: (socket: Duplex, head: Buffer) => void,
  otherwise?: RequestListener,
): Promise<Backend> {
  const requests: IncomingMessage[] = [];
  const [connections, dialed]: [Socket[], Socket[]] = [[], []];
  const server = createServer(otherwise);
  server.on("connection", (socket) => connections.push(socket));
  if (!otherwise) {
    server.on("upgrade", (received, socket, head) => {
      requests.push(received);
      socket.on("error", () => socket.destroy());
      socket.write(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
      );
      serve(socket, head);
    });
  }
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    for (const socket of connections) socket.destroy();
  });
  const address = server.address();
  assert.ok(typeof address === "object" && address);
  const { port } = address;
  const dial = async () => {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    await once(socket, "connect");
    dialed.push(socket);
    return socket;
  };
  return { endpoint: { path: "/exec/token-1?x=%20y", host: `127.0.0.1:${port}`, dial }, requests, connections, dialed };
}

/** The client's side of an upgraded connection. */
export interface Upgraded {
  readonly response: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
}

/** Requests an upgrade as the admin. */
export function upgrade(
  { port }: Running,
  path: string,
  headers: Record<string, string> = spdy,
  method = "POST",
): Promise<Upgraded> {
  const { promise, resolve, reject } = Promise.withResolvers<Upgraded>();
  const all = { authorization: `Bearer ${adminToken}`, cookie: "secret=1", ...headers };
  const sent = request({
    host: "127.0.0.1",
    port,
    path,
    method,
    rejectUnauthorized: false,
    agent: false,
    headers: all,
  });
  sent.once("upgrade", (response, socket, head) => resolve({ response, socket, head }));
  sent.once("response", (response) => reject(new Error(`answered ${response.statusCode}`)));
  sent.once("error", reject);
  sent.end();
  return promise;
}
