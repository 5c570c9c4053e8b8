import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { WebSocketServer } from "ws";
import { decodeMessage, encodeMessage, type TunnelMessage } from "../../src/remotedialer/messages.ts";
import { createTunnels, type Distribution, type Tunnels } from "../../src/remotedialer/tunnels.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { EndpointSlice } from "../../src/objects.ts";
import { createClusterCertificates, type ClusterCertificates, issue, pairIn } from "../harness/certificates.ts";
import { type EgressServer, findEgressServer, startEgressServer } from "../harness/egress-server.ts";
import { freePort, listen } from "../harness/ports.ts";
import { waitFor } from "../harness/wait.ts";

const advertisedPort = 10_250;

describe("remotedialer tunnels to API servers", { timeout: 120_000 }, () => {
  let program: string;
  let dir: string;
  let certificates: ClusterCertificates;
  let kubelet: Server;
  let kubeletPort: number;
  const servers: { port: number; connect: number; server: EgressServer }[] = [];
  const sockets = new Set<Socket>();
  let stalled: Socket | undefined;

  const startServer = (port: number, connect: number, path?: string) =>
    startEgressServer(
      program,
      { listen: `127.0.0.1:${port}`, connect: `127.0.0.1:${connect}`, ...(path && { path }) },
      { serving: certificates.apiServer, ca: certificates.ca },
    );
  const another = async (path?: string) => {
    const [port, connect] = [await freePort(), await freePort()];
    const made = { port, connect, server: startServer(port, connect, path) };
    servers.push(made);
    return made;
  };
  /** A connection by way of a server, to a port of the node. */
  const dial = async (connect: number, to = `edge-1:${advertisedPort}`): Promise<Socket> => {
    const asked = request({ host: "127.0.0.1", port: connect, method: "CONNECT", path: to, agent: false }).end();
    const [answer, socket, head] = (await once(asked, "connect")) as [IncomingMessage, Socket, Buffer];
    assert.equal(answer.statusCode, 200);
    if (head.length > 0) socket.unshift(head);
    return socket;
  };
  const nodesAt = (connect: number): Promise<readonly string[]> =>
    fetch(`http://127.0.0.1:${connect}`).then(
      async (answer) => (await answer.text()).split("\n").filter(Boolean),
      () => [],
    );
  /** Tunnels of a node to these servers. */
  const run = ({
    ports,
    name = "edge-1",
    distribution = "k3s",
  }: {
    readonly ports: () => readonly number[];
    readonly name?: string;
    readonly distribution?: Distribution;
  }) => {
    const hears = new Set<() => void>();
    const pair = pairIn(dir, name);
    const tunnels: Tunnels = createTunnels({
      distribution: async () => distribution,
      credentials: async () => ({
        tls: {
          ca: readFileSync(certificates.ca.cert),
          cert: readFileSync(pair.cert),
          key: readFileSync(pair.key),
          rejectUnauthorized: true,
        },
        headers: {},
      }),
      servers: {
        list: () =>
          ports().map(
            (port) =>
              ({
                metadata: {},
                addressType: "IPv4",
                endpoints: [{ addresses: ["127.0.0.1"] }],
                ports: [{ name: "https", port }],
              }) as unknown as EndpointSlice,
          ),
        onChange(hear) {
          hears.add(hear);
          return () => void hears.delete(hear);
        },
        ready: async () => {},
      },
      advertisedPort,
      kubelet: { host: "127.0.0.1", port: kubeletPort },
      clock: systemClock(),
      log: silentLog(),
    });
    const over = new AbortController();
    const running = tunnels.run(over.signal);
    return {
      tunnels,
      changed: () => hears.forEach((hear) => hear()),
      async [Symbol.asyncDispose]() {
        over.abort();
        await running;
      },
    };
  };

  before(async () => {
    program = await findEgressServer();
    dir = join(mkdtempSync(join(tmpdir(), "graftlet-egress-")), "pki");
    certificates = await createClusterCertificates(dir, ["IP:127.0.0.1"]);
    const usage = "clientAuth";
    for (const [name, commonName] of [
      ["edge-1", "system:node:edge-1"],
      ["edge-2", "system:node:edge-2"],
      ["nobody", "somebody"],
    ] as const)
      await issue(pairIn(dir, name), certificates.ca, { commonName, organization: "system:nodes", usage });
    // The first byte says what the connection is for: an echo, what was received, or nothing at all.
    kubelet = createServer({ allowHalfOpen: true }, (socket) => {
      sockets.add(socket);
      socket.on("error", () => undefined).once("close", () => sockets.delete(socket));
      socket.once("data", (first: Buffer) => {
        if (first[0] !== 101) {
          stalled = socket.pause();
          return;
        }
        socket.write(first.subarray(1));
        socket.pipe(socket);
      });
    });
    kubeletPort = await listen(kubelet);
  });
  after(async () => {
    for (const { server } of servers) await server.kill();
    for (const socket of sockets) socket.destroy();
    kubelet?.close();
    rmSync(join(dir, ".."), { recursive: true });
  });

  /** Sends these bytes to the echo, and takes as many back. */
  const echoed = async (connect: number, bytes: Buffer) => {
    const socket = await dial(connect);
    socket.write(Buffer.concat([Buffer.from("e"), bytes]));
    const hash = createHash("sha256");
    let left = bytes.length;
    for await (const chunk of socket) {
      hash.update(chunk as Buffer);
      left -= (chunk as Buffer).length;
      if (left <= 0) break;
    }
    socket.destroy();
    return hash.digest("hex");
  };
  const sum = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

  test("tunnels carry many concurrent connections to the kubelet's port completely", async () => {
    const { port, connect } = await another();
    await using node = run({ ports: () => [port] });
    await waitFor("the tunnel", async () => (await nodesAt(connect)).includes("edge-1"));
    assert.deepEqual(node.tunnels.connected(), [`127.0.0.1:${port}`]);
    const large = randomBytes(32 * 2 ** 20);
    assert.equal(await echoed(connect, large), sum(large));
    const many = Array.from({ length: 50 }, () => randomBytes(64 * 1024));
    assert.deepEqual(await Promise.all(many.map((bytes) => echoed(connect, bytes))), many.map(sum));
    await waitFor("all to be closed at the kubelet", () => sockets.size === 0);
  });

  test("tunnels reach no other port, node or address", async () => {
    const { port, connect } = await another();
    await using _node = run({ ports: () => [port] });
    await waitFor("the tunnel", async () => (await nodesAt(connect)).length === 1);
    for (const to of [`edge-1:22`, `edge-1:${kubeletPort}`, `..10.0.0.7:${advertisedPort}`]) {
      const socket = await dial(connect, to);
      assert.equal((await buffer(socket)).length, 0, to);
    }
    assert.equal(sockets.size, 0);
  });

  test("tunnels keep other connections open, and buffer little, while the kubelet does not read from one", async () => {
    const { port, connect } = await another();
    await using _node = run({ ports: () => [port] });
    await waitFor("the tunnel", async () => (await nodesAt(connect)).length === 1);
    const socket = await dial(connect);
    const before = process.memoryUsage.rss();
    socket.write("s");
    const block = Buffer.alloc(2 ** 20);
    for (let sent = 0; sent < 256; sent += 1)
      if (!socket.write(block)) {
        const drained = once(socket, "drain").then(() => true);
        if (!(await Promise.race([drained, new Promise((resolve) => setTimeout(() => resolve(false), 1_000))]))) break;
      }
    assert.ok(stalled);
    assert.ok(process.memoryUsage.rss() - before < 64 * 2 ** 20);
    const small = randomBytes(100_000);
    assert.equal(await echoed(connect, small), sum(small));
    socket.destroy();
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    stalled.once("end", resolve).resume();
    await ended;
    stalled.destroy();
    await waitFor("all to be closed at the kubelet", () => sockets.size === 0);
  });

  test("tunnels refuse a node that the server does not know, without affecting another node's tunnel", async () => {
    const { port, connect } = await another();
    await using stranger = run({ ports: () => [port], name: "nobody" });
    await using _other = run({ ports: () => [port], name: "edge-2" });
    await waitFor("the other's tunnel", async () => (await nodesAt(connect)).length > 0);
    assert.deepEqual(await nodesAt(connect), ["edge-2"]);
    assert.deepEqual(stranger.tunnels.connected(), []);
  });

  test("tunnels reconnect to a restarted server, and follow servers that are added or removed", async () => {
    const first = await another();
    let ports = [first.port];
    await using node = run({ ports: () => ports });
    await waitFor("the tunnel", async () => (await nodesAt(first.connect)).length === 1);
    await first.server.kill();
    await waitFor("its loss", () => node.tunnels.connected().length === 0);
    first.server = startServer(first.port, first.connect);
    const second = await another();
    ports = [first.port, second.port];
    node.changed();
    await waitFor("both", () => node.tunnels.connected().length === 2, { timeoutMs: 20_000 });
    const small = randomBytes(1000);
    for (const { connect } of [first, second]) assert.equal(await echoed(connect, small), sum(small));
    ports = [second.port];
    node.changed();
    await waitFor("one to be left", async () => (await nodesAt(first.connect)).length === 0);
    assert.equal(await echoed(second.connect, small), sum(small));
  });

  test("tunnels close one side when the other closes", async () => {
    const { port, connect } = await another();
    await using _node = run({ ports: () => [port] });
    await waitFor("the tunnel", async () => (await nodesAt(connect)).length === 1);
    const socket = await dial(connect);
    socket.write("ehello");
    await waitFor("the connection", () => sockets.size === 1);
    assert.equal(String(await once(socket, "data")), "hello");
    for (const one of sockets) one.end("bye");
    assert.equal(await text(socket), "bye");
  });

  test("tunnels process frames that arrive together with the handshake's response", async () => {
    const { cert, key } = certificates.apiServer;
    const server = createTlsServer({ cert: readFileSync(cert), key: readFileSync(key) });
    const sessions = new WebSocketServer({ noServer: true });
    const heard: TunnelMessage[] = [];
    const address = `127.0.0.1:${advertisedPort}`;
    server.on("upgrade", (asked, socket, head) => {
      socket.cork();
      sessions.handleUpgrade(asked, socket, head, (session) => {
        session.on("message", (bytes: Buffer) => {
          const message = decodeMessage(bytes);
          if (message) heard.push(message);
        });
        session.send(encodeMessage({ kind: "connect", connection: 1n, protocol: "tcp", address }, 1n));
        session.send(encodeMessage({ kind: "data", connection: 1n, data: Buffer.from("ehello") }, 2n));
        process.nextTick(() => socket.uncork());
      });
    });
    const port = await listen(server);
    try {
      await using _node = run({ ports: () => [port] });
      await waitFor("the echo", () => heard.length > 0, 10_000);
      assert.deepEqual(heard, [{ kind: "data", connection: 1n, data: Buffer.from("hello") }]);
    } finally {
      server.close();
    }
  });
});
