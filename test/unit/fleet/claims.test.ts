import assert from "node:assert/strict";
import { test } from "node:test";
import { createClaims } from "../../../src/fleet/claims.ts";
import type { FleetCondition, GraftedNode } from "../../../src/fleet/grafted-node.ts";
import type { Arrival } from "../../../src/seams/machine-listeners.ts";
import { fakeClock } from "../../fakes/clock.ts";

type Verdict = readonly [status: FleetCondition["status"], reason: string];

const connected: Verdict = ["True", "Connected"];
const tunnelDown: Verdict = ["False", "ReverseTunnelDown"];
const linkDown: Verdict = ["False", "LinkDown"];

/** An object in an epoch of another replica, with its condition Linked. */
function object(epoch: number, [status, reason]: Verdict, observedEpoch = epoch): GraftedNode {
  const linked = { type: "Linked", status, reason, message: "", lastTransitionTime: "" };
  return {
    metadata: { name: "edge-1", namespace: "edge", uid: "1" },
    spec: { ssh: { reverse: {} } },
    status: { owner: { replica: "other", uid: "other", epoch, since: "" }, observedEpoch, conditions: [linked] },
  };
}

function lab() {
  const clock = fakeClock();
  let arrival: Arrival | undefined;
  const claims = createClaims({ clock, dialsIn: ({ spec }) => spec.ssh.reverse !== undefined, arrival: () => arrival });
  return {
    clock,
    claims,
    arrive: (isDoubtful = false) => void (arrival = { at: clock.monotonic(), isDoubtful }),
    leave: () => void (arrival = undefined),
  };
}

test("an object without living owner is claimed at once where its machine is connected, and nowhere else", () => {
  const { claims, arrive, leave } = lab();
  assert.equal(claims.delayMs(object(1, tunnelDown), false), undefined);
  arrive();
  assert.equal(claims.delayMs(object(1, tunnelDown), false), 0);
  leave();
  assert.equal(claims.delayMs(object(1, tunnelDown), false), undefined);
});

test("an object is claimed from an owner that says that it has no tunnel, even twice in a row", async () => {
  const { claims, clock, arrive } = lab();
  claims.delayMs(object(1, connected), true);
  await clock.advance(60_000);
  arrive();
  assert.equal(claims.delayMs(object(1, tunnelDown), true), 0);
  claims.taken(object(1, tunnelDown));
  assert.equal(claims.delayMs(object(3, tunnelDown), true), 0);
});

test("an object is claimed from an owner that is linked once a newer connection has lasted ten seconds", async () => {
  const { claims, clock, arrive } = lab();
  assert.equal(claims.delayMs(object(1, connected), true), undefined);
  await clock.advance(1_000);
  arrive();
  assert.equal(claims.delayMs(object(1, connected), true), 10_000);
  await clock.advance(7_000);
  assert.equal(claims.delayMs(object(1, connected), true), 3_000);
  await clock.advance(1_000);
  arrive();
  assert.equal(claims.delayMs(object(1, connected), true), 10_000, "another connection");
});

test("a connection that is older than the owner's epoch does not claim the object while the owner is linked", async () => {
  const { claims, clock, arrive } = lab();
  arrive();
  await clock.advance(1_000);
  claims.delayMs(object(2, connected), true);
  await clock.advance(600_000);
  assert.equal(claims.delayMs(object(2, connected), true), undefined);
  assert.equal(claims.delayMs(object(2, linkDown), true), 0);
});

test("an object is claimed from owners that have a connection at most once a minute", async () => {
  const { claims, clock, arrive } = lab();
  claims.delayMs(object(1, connected), true);
  await clock.advance(30_000);
  arrive();
  claims.taken(object(1, connected));
  claims.delayMs(object(3, linkDown), true);
  await clock.advance(20_000);
  arrive();
  assert.equal(claims.delayMs(object(3, linkDown), true), 40_000);
  assert.equal(claims.delayMs(object(3, connected), true), 40_000);
});

test("an owner has twenty seconds to connect, during which the condition of the previous owner does not count", () => {
  const { claims, arrive } = lab();
  arrive();
  assert.equal(claims.delayMs(object(2, ["Unknown", "NotConnected"]), true), 20_000);
  assert.equal(claims.delayMs(object(2, tunnelDown, 1), true), 20_000);
  assert.equal(claims.delayMs(object(2, connected, 1), true), 20_000);
});

test("a machine whose last host key was wrong is not taken from an owner that is linked", async () => {
  const { claims, clock, arrive } = lab();
  claims.delayMs(object(1, connected), true);
  await clock.advance(1_000);
  arrive(true);
  assert.equal(claims.delayMs(object(1, connected), true), undefined);
  assert.equal(claims.delayMs(object(1, tunnelDown), false), 0);
});
