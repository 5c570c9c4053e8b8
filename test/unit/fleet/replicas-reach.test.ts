import assert from "node:assert/strict";
import { test } from "node:test";
import {
  advance,
  checkEpochs,
  createWorld,
  ownerOf,
  reached,
  startReplica,
  unserved,
  untilServed,
  wayOf,
} from "./replicas-world.ts";

const uids = ["a", "b", "c"];

for (const [what, isLost, seed] of [
  ["a machine", (name: string) => name === "m-0", 29],
  ["each of many machines", (name: string) => reached.includes(name), 37],
] as const)
  test(`${what} that only its owner does not reach is taken once, and its former owner gets no other`, async () => {
    using world = createWorld(seed);
    for (const uid of uids) startReplica(world, uid);
    await untilServed(world, "start");
    await advance(world, 30_000);
    const owner = ownerOf(world, "m-0")?.uid ?? "";
    const lost = reached.filter((name) => isLost(name) && ownerOf(world, name)?.uid === owner);
    const before = world.api.ownerChanges.length;
    for (const name of reached) if (isLost(name)) world.interrupted.add(wayOf(owner, name));
    await advance(world, 110_000);
    assert.equal(world.api.ownerChanges.length, before, "the links may come back");
    await advance(world, 50_000);
    assert.deepEqual(unserved(world), []);
    await advance(world, 600_000);
    const changes = world.api.ownerChanges.slice(before);
    assert.deepEqual(changes.map(({ name }) => name).toSorted(), lost);
    assert.ok(changes.every(({ uid }) => uid !== owner));
    checkEpochs(world);
  });

test("machines whose new owner dies do not go back to the replica that does not reach them", async () => {
  using world = createWorld(43);
  for (const uid of uids) startReplica(world, uid);
  await untilServed(world, "start");
  const lost = ownerOf(world, "m-0")?.uid ?? "";
  const [taker = "", third = ""] = uids.filter((uid) => uid !== lost);
  const of = (uid: string) => reached.filter((name) => ownerOf(world, name)?.uid === uid);
  const ofThird = of(third);
  const ways = of(lost).map((name) => wayOf(third, name));
  for (const way of [...reached.map((name) => wayOf(lost, name)), ...ways]) world.interrupted.add(way);
  await advance(world, 400_000);
  assert.deepEqual(of(third), ofThird);
  for (const way of ways) world.interrupted.delete(way);
  const before = world.api.ownerChanges.length;
  const ofTaker = of(taker);
  world.replicas.get(taker)?.process.kill();
  await untilServed(world, "after the kill");
  await advance(world, 300_000);
  const changes = world.api.ownerChanges.slice(before).filter(({ name }) => reached.includes(name));
  assert.deepEqual(changes.map(({ name }) => name).toSorted(), ofTaker);
  assert.ok(changes.every(({ uid }) => uid === third));
});

test("a machine that no replica reaches stays with its owner", async () => {
  using world = createWorld(31);
  for (const uid of uids) startReplica(world, uid);
  await untilServed(world, "start");
  const owner = ownerOf(world, "m-0");
  for (const uid of uids) world.interrupted.add(wayOf(uid, "m-0"));
  await advance(world, 600_000);
  assert.deepEqual(ownerOf(world, "m-0"), owner);
  for (const uid of uids) world.interrupted.delete(wayOf(uid, "m-0"));
  await untilServed(world, "after the interruption");
  assert.deepEqual(ownerOf(world, "m-0"), owner);
});

for (const [lost, taker] of uids.flatMap((one) => uids.filter((uid) => uid !== one).map((other) => [one, other])))
  test(`machines that ${taker} took because ${lost} does not reach them count neither as its surplus nor as its load`, async () => {
    using world = createWorld(41);
    for (const uid of uids) startReplica(world, uid);
    await untilServed(world, "start");
    await advance(world, 30_000);
    const of = (uid: string) => reached.filter((name) => ownerOf(world, name)?.uid === uid);
    const [kept, own] = [of(lost ?? ""), of(taker ?? "")];
    for (const uid of uids) if (uid !== taker) for (const name of kept) world.interrupted.add(wayOf(uid, name));
    await advance(world, 400_000);
    assert.deepEqual(of(taker ?? "").toSorted(), [...kept, ...own].toSorted());
    const before = world.api.ownerChanges.length;
    for (const name of own) world.api.remove("graftednodes", name);
    await advance(world, 60_000);
    const taken = world.api.ownerChanges.slice(before).filter(({ uid }) => uid !== "");
    assert.deepEqual(
      taken.map(({ uid }) => uid),
      [taker],
      "the third replica gives one of its machines, and gives it once",
    );
  });
