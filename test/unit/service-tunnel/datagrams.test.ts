import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import type { Socket } from "node:dgram";
import { test } from "node:test";
import { createFairShares } from "../../../src/lib/fair-shares.ts";
import { createDatagramFlows } from "../../../src/service-tunnel/datagrams.ts";
import { createTunnelGate } from "../../../src/service-tunnel/gate.ts";
import { fakeClock } from "../../fakes/clock.ts";

const dns = "10.96.0.10:53";

/** A socket that the test connects. */
class FakeSocket extends EventEmitter {
  readonly sent: Buffer[] = [];
  readonly to: string[] = [];
  closed = 0;
  unsent = 0;
  connect(port: number, host: string) {
    this.to.push(`${host}:${port}`);
  }
  send(data: Buffer) {
    this.sent.push(data);
  }
  getSendQueueSize() {
    return this.unsent;
  }
  close() {
    this.closed += 1;
  }
}

function setUp({ flows: most = 100 } = {}) {
  const clock = fakeClock();
  const sockets: FakeSocket[] = [];
  const answers: string[] = [];
  const gate = createTunnelGate();
  const allow = (pods: readonly string[], udp = [dns]) => gate.allow({ pods, tcp: [], udp });
  allow(["10.88.0.2", "10.88.0.3"]);
  const flows = createDatagramFlows({
    gate,
    shares: createFairShares(most),
    clock,
    reply: ({ pod, data }) => void answers.push(`${pod} ${data.length}`),
    open() {
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket as unknown as Socket;
    },
  });
  const send = (pod: string, bytes = 10, to = dns) => flows.send({ to, pod, data: Buffer.alloc(bytes) });
  const open = () => sockets.filter(({ closed }) => closed === 0);
  return { clock, sockets, open, answers, flows, allow, send };
}

test("forwards only datagrams that the gate admits", () => {
  const t = setUp();
  t.send("10.88.0.2:5000");
  t.send("10.88.0.9:5000");
  t.send("10.88.0.2:5000", 10, "127.0.0.1:53");
  assert.deepEqual(
    t.sockets.map(({ to }) => to),
    [[dns]],
  );
});

test("queues a few datagrams until the socket is connected and drops the rest", () => {
  const t = setUp();
  for (let n = 0; n < 1_000; n += 1) t.send("10.88.0.2:5000");
  t.sockets[0]?.emit("connect");
  assert.equal(t.sockets[0]?.sent.length, 8);
  t.send("10.88.0.2:5000");
  assert.equal(t.sockets[0]?.sent.length, 9);
});

test("queues at most 1 MiB of datagrams for sockets that are not connected", () => {
  const t = setUp();
  for (let n = 0; n < 40; n += 1) t.send(`10.88.0.2:${5_000 + n}`, 60_000);
  for (const socket of t.sockets) socket.emit("connect");
  assert.equal(t.sockets.flatMap(({ sent }) => sent).length, 17);
  t.send("10.88.0.3:5000", 60_000);
  t.sockets.at(-1)?.emit("connect");
  assert.equal(t.sockets.at(-1)?.sent.length, 1, "and has room again when they are sent");
});

test("removes a flow whose socket fails; the next datagram opens a new one", () => {
  const t = setUp();
  t.send("10.88.0.2:5000");
  t.sockets[0]?.emit("error", new Error("EACCES"));
  assert.equal(t.sockets[0]?.closed, 1);
  t.send("10.88.0.2:5000");
  assert.equal(t.sockets.length, 2);
});

test("closes the oldest flow of a pod that has reached its share, but no flow of other pods", () => {
  const t = setUp({ flows: 8 });
  t.send("10.88.0.3:1");
  for (let n = 0; n < 50; n += 1) t.send(`10.88.0.2:${5_000 + n}`);
  assert.equal(t.sockets[0]?.closed, 0);
  assert.equal(t.open().length, 5);
  assert.equal(t.sockets.at(-1)?.closed, 0, "the newest one is open");
});

test("limits bytes per second and new flows", async () => {
  const t = setUp({ flows: 100_000 });
  t.send("10.88.0.2:5000");
  t.sockets[0]?.emit("connect");
  for (let n = 0; n < 1_000; n += 1) t.send("10.88.0.2:5000", 64_000);
  const first = t.sockets[0]?.sent.length ?? 0;
  assert.ok(first > 400 && first < 600, `${first}`);
  await t.clock.advance(1_000);
  for (let n = 0; n < 10_000; n += 1) t.send(`10.88.0.2:${6_000 + n}`);
  assert.ok(t.sockets.length > 1_500 && t.sockets.length < 2_100, `${t.sockets.length}`);
});

test("drops datagrams that the kernel cannot queue", () => {
  const t = setUp();
  t.send("10.88.0.2:5000");
  const [socket] = t.sockets;
  assert.ok(socket);
  socket.emit("connect");
  socket.unsent = 256 * 1024;
  t.send("10.88.0.2:5000");
  assert.equal(socket.sent.length, 1);
});

test("limits the bytes of replies", () => {
  const t = setUp();
  t.send("10.88.0.2:5000");
  for (let n = 0; n < 1_000; n += 1) t.sockets[0]?.emit("message", Buffer.alloc(64_000));
  assert.ok(t.answers.length > 400 && t.answers.length < 600, `${t.answers.length}`);
});

test("closes idle flows, and flows whose pod or destination is gone", async () => {
  const t = setUp();
  t.allow(["10.88.0.2", "10.88.0.3"], [dns, "10.96.0.11:53"]);
  t.send("10.88.0.2:5000");
  t.send("10.88.0.3:5000");
  t.send("10.88.0.3:5000", 10, "10.96.0.11:53");
  t.allow(["10.88.0.3"]);
  t.flows.recheck();
  assert.deepEqual(
    t.sockets.map(({ closed }) => closed),
    [1, 0, 1],
  );
  await t.clock.advance(59_000);
  t.send("10.88.0.3:5000");
  await t.clock.advance(59_000);
  assert.equal(t.open().length, 1);
  await t.clock.advance(2_000);
  assert.equal(t.open().length, 0);
});
