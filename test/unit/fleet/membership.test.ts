import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { createMembership, type Membership } from "../../../src/fleet/membership.ts";
import type { Replica } from "../../../src/fleet/own-lease.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { runGroup } from "../../../src/lib/runnables.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { simulatedApi, simulatedProcess } from "../../fakes/fleet-world.ts";

function world(t: TestContext) {
  const clock = fakeClock();
  const api = simulatedApi(clock);
  const replica = (uid: string, release = "r", self: Replica = { name: uid, uid }) => {
    const process = simulatedProcess(clock, api, () => 0.1, "self");
    let changes = 0;
    const membership = createMembership({
      client: process.client,
      clock: process.clock,
      log: silentLog(),
      namespace: "edge",
      release,
      self,
      onChange: () => (changes += 1),
    });
    const stop = new AbortController();
    let failure: unknown;
    runGroup(membership.running, stop.signal).catch((error: unknown) => (failure = error));
    t.after(() => {
      process.kill();
      stop.abort();
    });
    return { process, membership, changes: () => changes, failure: () => messageOf(failure ?? "") };
  };
  /** A process with the ServiceAccount `site`. */
  const outside = (id: string) => replica(id, "r", { name: "site", uid: `account.${id}`, accountUID: "account" });
  return { clock, api, replica, outside };
}

const inUse = /^another graftlet runs with ServiceAccount site: /;

const namesOf = ({ replicas }: Membership) =>
  replicas()
    .map(({ name }) => name)
    .toSorted();

test("a replica knows the others within a second, and that one has died after 15 s", async (t) => {
  const { clock, replica } = world(t);
  const [a, b] = [replica("a"), replica("b")];
  assert.equal(a.membership.mayTake(), false);
  await clock.advance(1_000);
  assert.deepEqual(a.membership.accepting().toSorted(), ["a", "b"]);
  assert.equal(a.membership.mayTake(), true);
  const c = replica("c");
  await clock.advance(60_000);
  assert.deepEqual(a.membership.accepting().toSorted(), ["a", "b", "c"]);
  const known = a.changes();
  await clock.advance(60_000);
  assert.equal(a.changes(), known, "renewals are no changes");
  c.process.kill();
  await clock.advance(9_000);
  assert.equal(a.membership.isAlive("c"), true);
  await clock.advance(7_000);
  assert.equal(a.membership.isAlive("c"), false);
  assert.equal(b.membership.isAlive("c"), false);
  assert.equal(a.changes(), known + 1);
});

test("if most replicas seem to have died at once, they get twice the time", async (t) => {
  const { clock, replica } = world(t);
  const all = ["a", "b", "c"].map((uid) => replica(uid));
  await clock.advance(20_000);
  for (const { process } of all.slice(1)) process.kill();
  await clock.advance(20_000);
  assert.equal(all[0]?.membership.isAlive("b"), true);
  await clock.advance(11_000);
  assert.equal(all[0]?.membership.isAlive("b"), false);
});

test("a replica that was cut off from the API server takes nothing, and gives the others their full time afterwards", async (t) => {
  const { clock, replica } = world(t);
  const [a, b] = [replica("a"), replica("b")];
  await clock.advance(10_000);
  a.process.cutOff(true);
  b.process.cutOff(true);
  const [before, from] = [a.changes(), clock.monotonic()];
  while (a.membership.isCurrent()) await clock.advance(100);
  await clock.advance(1_500);
  assert.equal(a.changes(), before + 1, "it tells that it knows no more than before");
  assert.ok(clock.monotonic() - from <= 12_000);
  assert.equal(a.membership.mayTake(), false);
  await clock.advance(120_000);
  assert.deepEqual(namesOf(a.membership), ["a", "b"], "as last known");
  a.process.cutOff(false);
  await clock.advance(8_000);
  assert.deepEqual([a.membership.mayTake(), a.membership.isAlive("b")], [true, true]);
  await clock.advance(25_000);
  assert.equal(a.membership.isAlive("b"), false);
  assert.deepEqual([a.membership.isCurrent(), namesOf(a.membership)], [true, ["a"]]);
});

test("a replica that shuts down accepts no objects, but stays alive until it has handed over its own", async (t) => {
  const { clock, replica } = world(t);
  const [a, b] = [replica("a"), replica("b")];
  await clock.advance(10_000);
  void b.membership.leave(new AbortController().signal);
  await clock.advance(1_000);
  assert.deepEqual(a.membership.accepting(), ["a"]);
  assert.deepEqual([a.membership.isAlive("b"), b.membership.mayTake()], [true, false]);
  assert.deepEqual(
    a.membership.replicas().map(({ uid, isLeaving }) => [uid, isLeaving]),
    [
      ["a", false],
      ["b", true],
    ],
  );
  void b.membership.end(new AbortController().signal);
  await clock.advance(1_000);
  assert.equal(a.membership.isAlive("b"), false);
});

test("replicas of another release in the namespace are alive, but share nothing with this one", async (t) => {
  const { clock, replica } = world(t);
  const [a] = [replica("a"), replica("other", "another")];
  await clock.advance(10_000);
  assert.deepEqual(a.membership.accepting(), ["a"]);
  assert.deepEqual([a.membership.isAlive("other"), a.membership.alive()], [true, 1]);
  assert.deepEqual(namesOf(a.membership), ["a"]);
});

test("a replica outside the cluster is one among the others, and its Lease is deleted with its account", async (t) => {
  const { clock, api, replica, outside } = world(t);
  const [a, site] = [replica("a"), outside("1")];
  await clock.advance(10_000);
  assert.deepEqual(a.membership.accepting().toSorted(), ["a", "account.1"]);
  assert.deepEqual(["a", "account.1"].map(a.membership.isOutside), [false, true]);
  assert.deepEqual(["a", "account.1"].map(site.membership.isOutside), [false, true]);
  const [lease] = api.objects("leases").filter(({ metadata }) => metadata.name === "graftlet-replica-site");
  const account = { apiVersion: "v1", kind: "ServiceAccount", name: "site", uid: "account" };
  assert.deepEqual(lease?.metadata.ownerReferences, [account]);
});

test("a second process with the same account ends, and the first goes on", async (t) => {
  const { clock, outside } = world(t);
  const first = outside("1");
  await clock.advance(10_000);
  const second = outside("2");
  await clock.advance(3_000);
  assert.equal(second.membership.mayTake(), false);
  await clock.advance(6_000);
  assert.match(second.failure(), inUse);
  assert.deepEqual([first.membership.mayTake(), first.failure()], [true, ""]);
});

test("the successor of a process that was killed is a replica once the Lease has expired, and at once after one that has ended", async (t) => {
  const { clock, replica, outside } = world(t);
  const [a, first] = [replica("a"), outside("1")];
  await clock.advance(10_000);
  first.process.kill();
  const second = outside("2");
  await clock.advance(10_000);
  assert.equal(second.membership.mayTake(), false);
  await clock.advance(10_000);
  assert.equal(second.membership.mayTake(), true);
  assert.deepEqual(namesOf(a.membership), ["a", "site"], "its predecessor is forgotten");
  await Promise.all([second.membership.end(new AbortController().signal), clock.advance(1_000)]);
  second.process.kill();
  const third = outside("3");
  await clock.advance(2_000);
  assert.deepEqual(a.membership.accepting().toSorted(), ["a", "account.3"]);
  assert.equal(third.membership.mayTake(), true);
});

test("a process that stood still while another became the replica ends", async (t) => {
  const { clock, outside } = world(t);
  const first = outside("1");
  await clock.advance(10_000);
  first.process.stop();
  const second = outside("2");
  await clock.advance(30_000);
  assert.equal(second.membership.mayTake(), true);
  first.process.continue();
  await clock.advance(10_000);
  assert.match(first.failure(), inUse);
  assert.deepEqual([first.membership.mayTake(), second.failure()], [false, ""]);
});

test("a replica outside the cluster writes its Lease again if that has been deleted", async (t) => {
  const { clock, api, outside } = world(t);
  const site = outside("1");
  await clock.advance(10_000);
  api.remove("leases", "graftlet-replica-site");
  await clock.advance(10_000);
  assert.equal(api.objects("leases").length, 1);
  assert.deepEqual([site.membership.mayTake(), site.failure()], [true, ""]);
});
