import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createForwardGate } from "../../../src/streams/forward-gate.ts";
import { type ForwardSlots, createForwardSlots, maxForwarded } from "../../../src/streams/forward-slots.ts";
import { connectionPair } from "../../../src/streams/connection-pair.ts";
import { serveForwardOverSpdy } from "../../../src/streams/port-forward-spdy.ts";
import { withEarlyReplies } from "../../../src/streams/spdy/early-replies.ts";
import { splice } from "../../../src/streams/splice.ts";
import type { ConnectPort } from "../../../src/streams/stream-server.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type SpdyClient, controlFrame, spdyClient, words } from "../../fakes/spdy-client.ts";
import { until } from "./clients.ts";

const { toPod, toNode } = maxForwarded;

/** Pods whose servers send their port and then echo; clients of them, each with its own gate in front of the runtime. */
function rig(t: TestContext) {
  const clock = fakeClock();
  const slots = createForwardSlots(clock);
  const log = createLogger(5, { write: () => undefined });
  const asked: number[] = [];
  const connect: ConnectPort = (port) => {
    asked.push(port);
    const [near, far] = connectionPair();
    far.on("error", () => undefined);
    far.write(`${port}:`);
    far.pipe(far);
    return Promise.resolve(near);
  };
  const joins: Promise<void>[] = [];
  function dial(pod: string): SpdyClient {
    const [socket, near] = connectionPair();
    const [far, server] = connectionPair();
    for (const end of [socket, far, server]) end.on("error", () => undefined);
    const gate = createForwardGate({ slots, podUid: pod, sessionSlot: ownOf(slots, pod), clock });
    const joined = splice(withEarlyReplies(near, gate), far, never)
      .catch(() => undefined)
      .finally(gate.close);
    joins.push(joined);
    const served = serveForwardOverSpdy(server, connect, { clock, log });
    t.after(async () => {
      socket.destroy();
      await joined;
      await served;
    });
    return spdyClient(socket);
  }
  return { clock, places: slots, asked, dial, allJoined: () => Promise.all(joins) };
}

function ownOf(places: ForwardSlots, pod: string) {
  const taken = places.acquire(pod, 1);
  assert.ok(taken.kind === "taken");
  return taken.slot;
}

/** The two streams of a connection; the second fails if the first has already received the reason. */
async function connectTo(client: SpdyClient, requestid: string) {
  const error = await client.open({ streamtype: "error", port: "80", requestid });
  await error.end();
  const data = await client.open({ streamtype: "data", port: "80", requestid });
  return { error, data };
}

/** Outcome of a promise while fake time advances. */
async function inTime<T>(clock: FakeClock, outcome: Promise<T>): Promise<T> {
  const so = { settled: false };
  const note = () => {
    so.settled = true;
  };
  outcome.then(note, note);
  for (let turn = 0; turn < 1000 && !so.settled; turn++) await clock.advance(50);
  return outcome;
}

test("limits a pod's connections: after a wait the next gets an error, the runtime does not see it, and the others continue", async (t) => {
  const { asked, clock, dial } = rig(t);
  const client = dial("pod");
  const standing = [];
  for (let at = 1; at < toPod; at++) standing.push(await connectTo(client, `c${at}`));
  await until(() => asked.length === toPod - 1);
  const told = await inTime(clock, client.open({ streamtype: "error", port: "80", requestid: "more" }));
  await told.end();
  assert.equal(
    await told.text,
    "no more than 64 connections are forwarded to this pod at a time: close some, then try again",
  );
  await assert.rejects(
    inTime(clock, client.open({ streamtype: "data", port: "80", requestid: "more" })),
    /stream reset/,
  );
  assert.equal(asked.length, toPod - 1);
  for (const { data, error } of standing) {
    await data.write("hello");
    await data.end();
    assert.equal(await data.text, "80:hello");
    assert.equal(await error.text, "");
  }
  const again = await connectTo(client, "again");
  await again.data.end();
  assert.equal(await again.data.text, "80:", "what has ended has given its place back");
});

test("uses a slot released in time, and delivers data sent meanwhile in order", async (t) => {
  const { asked, clock, dial } = rig(t);
  const [client, other] = [dial("pod"), dial("pod")];
  const first = await connectTo(other, "first");
  for (let at = 2; at < toPod - 1; at++) await connectTo(client, String(at));
  const late = connectTo(client, "late").then(async ({ data }) => {
    await data.write("in time");
    await data.end();
    return data.text;
  });
  await clock.advance(1000);
  assert.equal(asked.length, toPod - 2);
  await first.data.end();
  assert.equal(await inTime(clock, late), "80:in time");
});

test("limits the connections to all pods of a node", async (t) => {
  const { asked, dial, places } = rig(t);
  const most = toNode / 2;
  for (const pod of ["a", "b"]) {
    const client = dial(pod);
    for (let at = 1; at < most; at++) await connectTo(client, String(at));
  }
  await until(() => asked.length === toNode - 2);
  const third = places.acquire("c", 1);
  assert.match(
    third.kind === "full" ? third.text : "",
    /^no more than 128 connections are forwarded to pods of this node/,
  );
});

test("keeps the slot of an abandoned connection until the runtime has finished with it, at most two seconds", async (t) => {
  const { clock, dial, places, allJoined } = rig(t);
  const client = dial("pod");
  for (let at = 1; at < toPod; at++) await connectTo(client, String(at));
  assert.equal(places.acquire("pod", 1).kind, "full");
  client.socket.destroy();
  await allJoined();
  assert.equal(places.acquire("pod", 1).kind, "full");
  await clock.advance(2000);
  assert.equal(places.acquire("pod", toPod).kind, "taken");
});

test("counts incomplete connections that a client resets for as long as a runtime waits for the missing stream", async (t) => {
  const { clock, dial } = rig(t);
  const client = dial("pod");
  const half = async (at: number) => {
    const stream = await client.open({ streamtype: "error", port: "80", requestid: String(at) });
    await stream.reset();
    return stream;
  };
  for (let at = 1; at < toPod; at++) await half(at);
  const refused = await inTime(clock, client.open({ streamtype: "error", port: "80", requestid: "more" }));
  assert.match(await refused.text, /^no more than 64/);
  await clock.advance(30_000);
  const { data } = await connectTo(client, "later");
  await data.end();
  assert.equal(await data.text, "80:");
});

test("disconnects a client that continues after a hundred refusals, or sends headers on open streams", async (t) => {
  const { dial } = rig(t);
  const stubborn = dial("pod");
  let refused = 0;
  for (; refused < 200 && !stubborn.socket.destroyed; refused++)
    await stubborn.open({ streamtype: "none" }).catch(() => undefined);
  await stubborn.closed;
  assert.equal(refused, 101);
  const odd = dial("pod");
  await odd.raw(controlFrame(8, Buffer.concat([words(1), Buffer.from("whatever")])), controlFrame(6, words(1)));
  await odd.closed;
});
