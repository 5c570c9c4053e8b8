import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { createFairShares } from "../../../src/lib/fair-shares.ts";
import { createConnectionForwarder } from "../../../src/service-tunnel/connections.ts";
import { createTunnelGate } from "../../../src/service-tunnel/gate.ts";
import { fakeClock } from "../../fakes/clock.ts";

const service = "10.96.0.1:443";

/** A forwarder whose destination echoes.
 *  @param answers false to refuse connections. */
async function setUp(t: { after(fn: () => void): void }, { connections = 100, answers = true } = {}) {
  const clock = fakeClock();
  const server = createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => void server.close());
  const gate = createTunnelGate();
  gate.allow({ pods: ["10.88.0.2", "10.88.0.3"], tcp: [service], udp: [] });
  const refused: string[] = [];
  const full: string[] = [];
  let dialled = 0;
  const join = createConnectionForwarder({
    gate,
    shares: createFairShares(connections),
    onRefused: ({ err }) => void refused.push((err as Error).message),
    onLimitReached: (pod) => void full.push(pod),
    clock,
    dial: () => {
      dialled += 1;
      return connect({
        port: answers ? (server.address() as AddressInfo).port : 1,
        host: "127.0.0.1",
        allowHalfOpen: true,
      });
    },
  });
  const open = (line?: string) => {
    const [near, far] = duplexPair();
    far.on("error", () => undefined);
    t.after(() => far.destroy());
    const over = join(near);
    if (line !== undefined) far.write(line);
    return { far, near, over };
  };
  const lineFrom = (pod: string) => `${pod} 4000 10.96.0.1 443\n`;
  return { clock, refused, full, open, lineFrom, dialled: () => dialled };
}

const next = async (far: Duplex) => String((await once(far, "data"))[0]);

test("connects a pod to an allowed destination", async (t) => {
  const { open, lineFrom } = await setUp(t);
  const { far } = open(`${lineFrom("10.88.0.2")}hello`);
  assert.equal(await next(far), "+");
  assert.equal(await next(far), "hello");
});

for (const [why, line] of [
  ["an address that belongs to no pod", "10.88.0.9 4000 10.96.0.1 443\n"],
  ["a destination that is not allowed", "10.88.0.2 4000 127.0.0.1 22\n"],
  ["a truncated header line", "10.88.0.2 4000\n"],
] as const)
  test(`refuses ${why}`, async (t) => {
    const { open, refused, dialled } = await setUp(t);
    await open(line).over;
    assert.deepEqual([refused, dialled()], [["source or destination is not allowed"], 0]);
  });

for (const [why, line] of [
  ["without a newline", "x".repeat(65)],
  ["with a newline", `${"x".repeat(65)}\n`],
] as const)
  test(`refuses a header line longer than 64 bytes: ${why}`, async (t) => {
    const { open, refused } = await setUp(t);
    await open(line).over;
    assert.deepEqual(refused, ["header line too long"]);
  });

test("closes a connection that sends no header line within 10 s", async (t) => {
  const { open, clock } = await setUp(t);
  const { over, near } = open("10.88.0.2 40");
  await clock.advance(9_000);
  assert.equal(near.destroyed, false);
  await clock.advance(2_000);
  await over;
  assert.equal(near.destroyed, true);
});

test("refuses connections when 2,048 are waiting for a header", async (t) => {
  const { open, lineFrom, refused, clock } = await setUp(t);
  const silent = Array.from({ length: 2_048 }, () => open());
  await open(lineFrom("10.88.0.2")).over;
  assert.deepEqual(refused, ["too many connections without a header"]);
  await clock.advance(11_000);
  await Promise.all(silent.map(({ over }) => over));
  assert.equal(await next(open(lineFrom("10.88.0.2")).far), "+");
});

test("limits connections per pod; other pods still connect, and a closed connection frees capacity", async (t) => {
  const { open, lineFrom, full } = await setUp(t, { connections: 8 });
  const idle = Array.from({ length: 4 }, () => open(lineFrom("10.88.0.2")));
  for (const { far } of idle) assert.equal(await next(far), "+");
  await open(lineFrom("10.88.0.2")).over;
  assert.deepEqual(full, ["10.88.0.2"]);
  assert.equal(await next(open(lineFrom("10.88.0.3")).far), "+");
  for (const { far, over } of idle.slice(0, 2)) {
    far.end();
    far.resume();
    await over;
  }
  assert.equal(await next(open(lineFrom("10.88.0.2")).far), "+");
});

test("limits new connections to a destination by the ephemeral ports that closed connections still hold", async (t) => {
  const { open, lineFrom, refused, clock, dialled } = await setUp(t);
  for (let n = 0; n < 5_001; n += 1) {
    const { far, over } = open(lineFrom("10.88.0.2"));
    far.end();
    far.resume();
    await over;
  }
  assert.equal(dialled(), 5_000);
  assert.equal(refused.at(-1), "too many new connections to this destination");
  await clock.advance(1_000);
  const { far, over } = open(lineFrom("10.88.0.2"));
  far.end();
  far.resume();
  await over;
  assert.equal(dialled(), 5_001);
});

test("does not count connections that the destination refuses, as they hold no port", async (t) => {
  const { open, lineFrom, dialled } = await setUp(t, { answers: false });
  for (let n = 0; n < 5_100; n += 1) await open(lineFrom("10.88.0.2")).over;
  assert.equal(dialled(), 5_100);
});

test("a connection that fails before it is forwarded affects no other", async (t) => {
  const { open } = await setUp(t);
  const { near, over } = open("10.88");
  near.destroy(new Error("the link is lost"));
  await over;
});
