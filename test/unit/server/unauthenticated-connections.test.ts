import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { type TLSSocket, connect } from "node:tls";
import { createUnauthenticatedConnections } from "../../../src/server/unauthenticated-connections.ts";
import { type Running, adminToken, ask, settable, start } from "./harness.ts";
import { testCA } from "./pki.ts";

/** A socket with that address that records its end. */
function fakeSocket(remoteAddress: string, remotePort: number) {
  const closed: (() => void)[] = [];
  const socket = {
    remoteAddress,
    remotePort,
    localAddress: "10.0.0.1",
    localPort: 10250,
    destroyed: false,
    once: (_event: string, listener: () => void) => void closed.push(listener),
    destroy() {
      socket.destroyed = true;
      for (const listener of closed) listener();
    },
  };
  return socket as unknown as Socket;
}

test("over the limit, closes the oldest connection of the address with the most connections", () => {
  const strangers = createUnauthenticatedConnections({ maxUnauthenticated: 4, maxAuthenticated: 9 });
  const few = [1, 2].map((port) => fakeSocket("10.0.0.2", port));
  const many = [1, 2, 3, 4].map((port) => fakeSocket("10.0.0.3", port));
  for (const socket of [...few, ...many]) strangers.accept(socket);
  const states = () => [...few, ...many].map(({ destroyed }) => destroyed);
  assert.deepEqual(states(), [false, false, true, true, false, false]);
  strangers.accept(fakeSocket("10.0.0.4", 1));
  assert.deepEqual(states(), [true, false, true, true, false, false]);
});

test("does not count closed connections, nor authenticated ones up to a limit", () => {
  const strangers = createUnauthenticatedConnections({ maxUnauthenticated: 2, maxAuthenticated: 2 });
  const sockets = [1, 2, 3, 4, 5, 6].map((port) => fakeSocket("10.0.0.2", port));
  for (const socket of sockets.slice(0, 3)) {
    strangers.accept(socket);
    strangers.authenticated(socket);
  }
  for (const socket of sockets.slice(3)) strangers.accept(socket);
  const states = () => sockets.map(({ destroyed }) => destroyed);
  assert.deepEqual(states(), [false, false, true, true, false, false]);
  sockets[4]?.destroy();
  const late = fakeSocket("10.0.0.2", 7);
  strangers.accept(late);
  assert.deepEqual(states(), [false, false, true, true, true, false]);
  sockets[0]?.destroy();
  strangers.authenticated(late);
  strangers.accept(fakeSocket("10.0.0.2", 8));
  strangers.accept(fakeSocket("10.0.0.2", 9));
  assert.deepEqual([late.destroyed, sockets[5]?.destroyed], [false, true]);
});

/** A connection over which the text has been sent. */
async function opened({ port }: Running, text: string): Promise<TLSSocket> {
  const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false });
  socket.on("error", () => socket.destroy());
  await once(socket, "secureConnect");
  socket.write(text);
  return socket;
}

/** Everything that a connection receives until it ends. */
async function said(socket: TLSSocket): Promise<string> {
  let text = "";
  socket.on("data", (data) => (text += String(data)));
  if (!socket.closed) await once(socket, "close");
  return text;
}

const head = `GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${adminToken}\r\n`;

test("limits unauthenticated connections, but not those with a certificate or an authorized request", async () => {
  const ca = await testCA("cluster");
  const clientCA = settable<string | undefined>(ca.certificate);
  const unauthenticated = createUnauthenticatedConnections({ maxUnauthenticated: 3, maxAuthenticated: 10 });
  await using server = await start({ deps: { clientCA, unauthenticated } });
  const allowed = await opened(server, `${head}\r\n`);
  await once(allowed, "data");
  const open = [];
  for (let index = 0; index < 8; index++) open.push(await opened(server, "GET /healthz HTTP/1.1\r\n"));
  await Promise.all(open.slice(0, 5).map(said));
  assert.deepEqual(
    open.map(({ closed }) => closed),
    [true, true, true, true, true, false, false, false],
  );
  const { status } = await ask(server, "/healthz", { headers: {}, ...(await ca.client("CN=alice")) });
  assert.equal(status, 200);
  allowed.write(`${head}Connection: close\r\n\r\n`);
  assert.match(await said(allowed), /200 OK/);
});

test("limits headers to 64 KiB without and 1 MiB with a client certificate", async () => {
  const ca = await testCA("cluster");
  const clientCA = settable<string | undefined>(ca.certificate);
  await using server = await start({ deps: { clientCA } });
  const long = (bytes: number) => `/healthz?command=${"x".repeat(bytes)}`;
  const alice = await ca.client("CN=alice");
  assert.equal((await ask(server, long(900_000), { headers: {}, ...alice })).status, 200);
  assert.equal((await ask(server, long(60_000))).status, 200);
  assert.equal((await ask(server, long(70_000))).status, 431);
});

test("does not read the body of a refused request", async () => {
  await using server = await start();
  const post = await opened(
    server,
    "POST /run/ns/p/c HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nx".padEnd(100_000, "x"),
  );
  const text = await said(post);
  assert.match(text, /401 Unauthorized/);
  assert.match(text, /Connection: close/i);
});
