import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import type { ConnectPort } from "../../../src/seams/runtime.ts";
import { createForwardSlots, maxForwarded, waitForSlot } from "../../../src/streams/forward-slots.ts";
import { serveForwardOverSpdy } from "../../../src/streams/port-forward-spdy.ts";
import { forwardTo } from "../../../src/streams/port-forward.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { connectionPair } from "../../fakes/connection-pair.ts";
import { type SpdyClient, spdyClient } from "../../fakes/spdy-client.ts";
import { until } from "./clients.ts";

const { toPod, toNode } = maxForwarded;

/** Pods whose servers send their port and then echo; clients of them, each with its own session. */
function rig(t: TestContext) {
  const clock = fakeClock();
  const slots = createForwardSlots(clock);
  const asked: number[] = [];
  const connect: ConnectPort = (port) => {
    asked.push(port);
    const [near, far] = connectionPair();
    far.on("error", () => undefined);
    far.write(`${port}:`);
    far.pipe(far);
    return Promise.resolve(near);
  };
  const sessions: Promise<void>[] = [];
  function dial(pod: string): SpdyClient {
    const [socket, server] = connectionPair();
    for (const end of [socket, server]) end.on("error", () => undefined);
    const acquireSlot = (gone: AbortSignal) => waitForSlot(slots, pod, clock, gone);
    const forward = forwardTo(connect, silentLog());
    const session = serveForwardOverSpdy({ socket: server, forward, acquireSlot, clock });
    sessions.push(session);
    t.after(async () => {
      socket.destroy();
      await session;
    });
    return spdyClient(socket);
  }
  return { clock, places: slots, asked, dial, allEnded: () => Promise.all(sessions) };
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
  for (let at = 1; at <= toPod; at++) standing.push(await connectTo(client, `c${at}`));
  await until(() => asked.length === toPod);
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
  assert.equal(asked.length, toPod);
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
  for (let at = 2; at <= toPod; at++) await connectTo(client, String(at));
  const late = connectTo(client, "late").then(async ({ data }) => {
    await data.write("in time");
    await data.end();
    return data.text;
  });
  await clock.advance(1000);
  assert.equal(asked.length, toPod);
  await first.data.end();
  assert.equal(await inTime(clock, late), "80:in time");
});

test("limits the connections to all pods of a node", async (t) => {
  const { asked, dial, places } = rig(t);
  const most = toNode / 2;
  for (const pod of ["a", "b"]) {
    const client = dial(pod);
    for (let at = 1; at <= most; at++) await connectTo(client, String(at));
  }
  await until(() => asked.length === toNode);
  const third = places.acquire("c", 1);
  assert.match(
    third.kind === "full" ? third.text : "",
    /^no more than 128 connections are forwarded to pods of this node/,
  );
});

test("keeps the slot of an abandoned connection until the runtime has finished with it, at most two seconds", async (t) => {
  const { clock, dial, places, allEnded } = rig(t);
  const client = dial("pod");
  for (let at = 1; at <= toPod; at++) await connectTo(client, String(at));
  assert.equal(places.acquire("pod", 1).kind, "full");
  client.socket.destroy();
  await allEnded();
  assert.equal(places.acquire("pod", 1).kind, "full");
  await clock.advance(2000);
  assert.equal(places.acquire("pod", toPod).kind, "taken");
});
