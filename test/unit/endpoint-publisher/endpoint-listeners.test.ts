import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { createFairShares } from "../../../src/lib/fair-shares.ts";
import { createEndpointListeners } from "../../../src/endpoint-publisher/endpoint-listeners.ts";
import { fakeClock } from "../../fakes/clock.ts";

const listenAddress = "127.0.0.1";

/** Endpoint listeners of a node, with one port open.
 *  @param most maximum number of concurrent connections of the node.
 *  @param ofProcess limits of all nodes. */
async function setUp(t: { after(fn: () => PromiseLike<void>): void }, most: number, ofProcess = 1_000) {
  const inPods: Duplex[] = [];
  const doors = createEndpointListeners({
    async dial() {
      const [near, far] = duplexPair();
      inPods.push(far);
      far.write("hello");
      return near;
    },
    podAddress: () => "10.88.0.5",
    listenAddress,
    connections: createFairShares(ofProcess),
    nodeName: "edge-1",
    maxConnections: most,
    clock: fakeClock(),
    log: silentLog(),
  });
  t.after(() => doors[Symbol.asyncDispose]());
  const ports = [80, 81];
  const [port = 0, other = 0] = await Promise.all(ports.map((one) => doors.open({ uid: "a", port: one }, new Set())));
  /** @returns undefined if the connection is reset. */
  const open = async (from: string, at = port): Promise<Socket | undefined> => {
    const socket = connect({ port: at, host: listenAddress, localAddress: from });
    const answered = new Promise<Socket>((resolve) => socket.once("data", () => resolve(socket)));
    const over = new Promise<undefined>((resolve) => socket.once("error", () => resolve(undefined)));
    return await Promise.race([answered, over]);
  };
  const openMany = async (count: number, from: string, at = port) => {
    const sockets = [];
    for (let n = 0; n < count; n += 1) sockets.push(await open(from, at));
    return sockets.filter((socket) => socket !== undefined);
  };
  return { open, openMany, inPods, other };
}

test("limits a single peer to half of a port's connections", async (t) => {
  const { open, openMany, inPods, other } = await setUp(t, 16);
  assert.equal((await openMany(6, "127.0.0.2")).length, 4);
  assert.equal(inPods.length, 4, "what is refused does not reach the pod");
  assert.ok(await open("127.0.0.3"), "at the same port");
  assert.equal((await openMany(6, "127.0.0.2", other)).length, 4);
  assert.ok(await open("127.0.0.3", other));
});

test("limits a port to half of the node's connections", async (t) => {
  const { openMany, other } = await setUp(t, 16);
  const opened = [];
  for (const peer of [2, 3, 4, 5, 6, 7, 8, 9]) opened.push(...(await openMany(3, `127.0.0.${peer}`)));
  assert.equal(opened.length, 8);
  assert.equal((await openMany(1, "127.0.0.10", other)).length, 1);
});

test("frees capacity when a connection ends", async (t) => {
  const { open, openMany, inPods } = await setUp(t, 8);
  const opened = await openMany(3, "127.0.0.2");
  assert.equal(opened.length, 2);
  opened.forEach((socket) => socket.end());
  inPods.forEach((inPod) => inPod.resume().end());
  for (let tries = 0; !(await open("127.0.0.2")); tries += 1) assert.ok(tries < 100, "there is no room");
});

test("limits a node to its share of the process's connections", async (t) => {
  const { openMany } = await setUp(t, 1_000, 8);
  assert.equal((await openMany(6, "127.0.0.2")).length, 4);
});
