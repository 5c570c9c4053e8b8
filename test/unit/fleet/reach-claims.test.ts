import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import type { FleetCondition, GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { rankOf } from "../../../src/fleet/placement.ts";
import { createReachClaims } from "../../../src/fleet/reach-claims.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";

const replicas = ["a", "b", "c"];
const owner = "a";
/** The other replicas, in the order in which they connect to the machine. */
const inTurn = replicas
  .filter((uid) => uid !== owner)
  .toSorted((one, other) => Number(rankOf("edge-1", ["b", "c"], one)) - Number(rankOf("edge-1", ["b", "c"], other)));

/** An object of the first replica, with its condition Linked. */
function object(status: FleetCondition["status"], reason: string, epoch = 1): GraftedNode {
  const linked = { type: "Linked", status, reason, message: "", lastTransitionTime: "" };
  return {
    metadata: { name: "edge-1", namespace: "edge", uid: "1" },
    spec: { ssh: { host: "edge-1" } },
    status: { owner: { replica: owner, uid: owner, epoch, since: "" }, observedEpoch: epoch, conditions: [linked] },
  };
}

/** An object that replica b took in an epoch, because its former owner did not reach it. @param now the present epoch. */
function takenFrom(former: string, epoch: number, now = epoch): GraftedNode {
  const owner = { replica: "b", uid: "b", epoch: now, since: "", unreachedBy: { uid: former, epoch } };
  return { ...object("True", "Connected"), status: { owner, observedEpoch: now } };
}

/** The claims of a replica. */
function start(t: TestContext, self = inTurn[0] ?? "") {
  const clock = fakeClock();
  const stop = new AbortController();
  const world = { object: object("False", "LinkDown"), isReached: true, connections: 0, due: 0 };
  const claims = createReachClaims({
    clock,
    log: silentLog(),
    self,
    objects: () => [world.object],
    accepting: () => replicas,
    async reach() {
      world.connections += 1;
      if (!world.isReached) throw new Error("no route");
    },
    onDue: () => void (world.due += 1),
  });
  const ended = claims.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await ended;
  });
  const advance = async (seconds: number) => {
    for (let left = seconds; left > 0; left -= 5) await clock.advance(5_000);
  };
  const show = (now: GraftedNode) => {
    world.object = now;
    claims.changed(now);
  };
  return { world, claims, advance, show };
}

test("the first replica in turn connects a minute after the owner's link was lost, and takes the object a minute later", async (t) => {
  const { world, claims, advance } = start(t);
  await advance(55);
  assert.equal(world.connections, 0);
  await advance(30);
  assert.ok(world.connections >= 1);
  assert.equal(claims.isDue(world.object), false);
  await advance(80);
  assert.equal(claims.isDue(world.object), true);
  assert.ok(world.due > 0);
});

test("the next replica in turn connects two minutes later", async (t) => {
  const { world, advance } = start(t, inTurn[1]);
  await advance(170);
  assert.equal(world.connections, 0);
  await advance(40);
  assert.ok(world.connections >= 1);
});

test("a machine that is not reached is connected to ever more rarely, and its object is not taken", async (t) => {
  const { world, claims, advance } = start(t);
  world.isReached = false;
  await advance(3_600);
  assert.equal(claims.isDue(world.object), false);
  assert.ok(world.connections >= 4 && world.connections <= 12, String(world.connections));
});

test("one failure begins the minute again", async (t) => {
  const { world, claims, advance } = start(t);
  await advance(100);
  world.isReached = false;
  await advance(25);
  world.isReached = true;
  await advance(80);
  assert.equal(claims.isDue(world.object), false);
  await advance(80);
  assert.equal(claims.isDue(world.object), true);
});

test("an object whose link comes back, whose machine refuses the login, or that changes its owner is left alone", async (t) => {
  for (const now of [object("True", "Connected"), object("False", "LoginRefused"), object("False", "LinkDown", 2)]) {
    const { world, claims, advance, show } = start(t);
    await advance(100);
    const before = world.connections;
    show(now);
    await advance(55);
    assert.equal(world.connections, before, JSON.stringify(now.status));
    assert.equal(claims.isDue(now), false);
  }
});

test("an object that was taken is not taken again for ten minutes", async (t) => {
  const { world, claims, advance } = start(t);
  await advance(165);
  claims.taken(world.object);
  assert.equal(claims.isDue(world.object), false, "the owner has lost it again");
  await advance(600);
  assert.equal(claims.isDue(world.object), true);
});

test("every replica leaves an object that was taken where it is for an hour, and doubts its former owner for as long", async (t) => {
  for (const self of ["a", "b", "c"]) {
    const { claims, advance } = start(t, self);
    const taken = takenFrom("a", 2);
    assert.equal(claims.isKept(taken), true);
    assert.deepEqual([...claims.doubtful([taken])], ["a"]);
    await advance(3_595);
    assert.equal(claims.isKept(taken), true);
    await advance(10);
    assert.equal(claims.isKept(taken), false);
    assert.equal(claims.doubtful([taken]).size, 0);
    assert.equal(claims.isKept(takenFrom("a", 5)), true, "it was taken again");
  }
});

test("an object that came to its owner in another way is not kept, even if an earlier version left the field in its status", async (t) => {
  const { claims } = start(t);
  for (const other of [object("True", "Connected"), takenFrom("a", 2, 3)]) {
    assert.equal(claims.isKept(other), false);
    assert.equal(claims.doubtful([other]).size, 0);
  }
});
