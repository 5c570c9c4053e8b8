import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { test } from "node:test";
import { createMultiplexer } from "../../../src/remotedialer/multiplexer.ts";
import type { TunnelMessage } from "../../../src/remotedialer/messages.ts";
import { listen } from "../../harness/ports.ts";
import { waitFor } from "../../harness/wait.ts";

/** A multiplexer connected to a test server. The tunnel buffers as many bytes as the test says. */
async function rig(serve: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).once("close", () => sockets.delete(socket));
    serve(socket);
  });
  const port = await listen(server);
  const link = { unsent: 0 };
  const sent: { readonly message: TunnelMessage; readonly out: () => void }[] = [];
  const carrier = createMultiplexer({
    resolveTarget: () => ({ host: "127.0.0.1", port }),
    send: (message, out = () => undefined) => void sent.push({ message, out }),
    unsentBytes: () => link.unsent,
  });
  const dial = (connection: bigint) =>
    carrier.handle({ kind: "connect", connection, protocol: "tcp", address: `127.0.0.1:${port}` });
  const said = (connection: bigint) =>
    sent.flatMap(({ message }) =>
      message.kind === "data" && message.connection === connection ? [Buffer.from(message.data).toString()] : [],
    );
  const until = (what: string, is: () => boolean) => waitFor(what, is, { timeoutMs: 10_000, everyMs: 5 });
  return {
    carrier,
    link,
    sent,
    sockets,
    dial,
    said,
    until,
    [Symbol.dispose]() {
      carrier.close();
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

test("resumes every paused connection once the tunnel has capacity again", async () => {
  using t = await rig((socket) => {
    socket.write("first");
    socket.on("data", () => socket.write("second"));
  });
  t.link.unsent = 2 ** 21;
  for (const connection of [1n, 2n]) t.dial(connection);
  await t.until("what both say first", () => t.said(1n).length === 1 && t.said(2n).length === 1);
  const [earlier, later] = t.sent;
  earlier?.out();
  t.link.unsent = 0;
  later?.out();
  for (const connection of [1n, 2n]) t.carrier.handle({ kind: "data", connection, data: Buffer.from("go") });
  await t.until("what both say then", () => t.said(1n).length === 2 && t.said(2n).length === 2);
});

test("a connection paused by the server stays paused even while the tunnel has capacity", async () => {
  using t = await rig((socket) => socket.on("data", () => socket.write("said")));
  t.dial(1n);
  t.carrier.handle({ kind: "pause", connection: 1n });
  t.carrier.handle({ kind: "data", connection: 1n, data: Buffer.from("go") });
  await t.until("the connection", () => t.sockets.size === 1);
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.deepEqual(t.said(1n), []);
  t.carrier.handle({ kind: "resume", connection: 1n });
  await t.until("what it says", () => t.said(1n).length === 1);
});

const controls = (t: Awaited<ReturnType<typeof rig>>) =>
  t.sent.flatMap(({ message: { kind } }) => (kind === "pause" || kind === "resume" ? [kind] : []));

test("repeats graftlet's own state to a server that resumes, because the server's pause may block its writer", async () => {
  using t = await rig(() => undefined);
  t.dial(1n);
  t.carrier.handle({ kind: "pause", connection: 1n });
  t.carrier.handle({ kind: "resume", connection: 1n });
  assert.deepEqual(controls(t), ["resume"]);
});

test("keeps graftlet's pause after the server resumes, and does not end the server's pause", async () => {
  using t = await rig((socket) => socket.pause());
  t.dial(1n);
  const block = Buffer.alloc(2 ** 20);
  for (let count = 0; count < 32; count += 1) t.carrier.handle({ kind: "data", connection: 1n, data: block });
  assert.deepEqual(controls(t), ["pause"]);
  for (const kind of ["pause", "resume", "pause"] as const) t.carrier.handle({ kind, connection: 1n });
  assert.deepEqual(controls(t), ["pause", "pause"]);
  await t.until("the connection", () => t.sockets.size === 1);
  let taken = 0;
  for (const socket of t.sockets) socket.on("data", (bytes: Buffer) => void (taken += bytes.length)).resume();
  await t.until("all to be taken", () => taken === 32 * 2 ** 20);
  assert.deepEqual(controls(t), ["pause", "pause"]);
  t.carrier.handle({ kind: "resume", connection: 1n });
  assert.deepEqual(controls(t), ["pause", "pause", "resume"]);
});

test("closes connections that the kubelet is still draining no later than the end of the session", async () => {
  using t = await rig((socket) => socket.pause());
  t.dial(1n);
  const block = Buffer.alloc(2 ** 20);
  for (let count = 0; count < 16; count += 1) t.carrier.handle({ kind: "data", connection: 1n, data: block });
  await t.until("the connection", () => t.sockets.size === 1);
  t.carrier.handle({ kind: "error", connection: 1n, text: "EOF" });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(t.sockets.size, 1, "it is given time to take it");
  t.carrier.close();
  let taken = 0;
  for (const socket of t.sockets) socket.on("data", (bytes: Buffer) => void (taken += bytes.length)).resume();
  await t.until("its end", () => t.sockets.size === 0);
  assert.ok(taken < 16 * 2 ** 20, `${taken} bytes`);
});
