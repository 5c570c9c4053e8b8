import assert from "node:assert/strict";
import { test } from "node:test";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import {
  absent,
  advance,
  checkEpochs,
  createWorld,
  dialling,
  namespace,
  objectOf,
  ownerOf,
  reached,
  startReplica,
  unserved,
  untilServed,
  wayOf,
  type World,
} from "./replicas-world.ts";

type Fault = (world: World, uid: string) => Promise<void>;

const faults: Readonly<Record<string, Fault>> = {
  async "is killed and replaced"(world, uid) {
    world.replicas.get(uid)?.process.kill();
    world.api.remove("pods", uid);
    await advance(world, world.random() * 10_000);
    world.replicas.delete(uid);
    startReplica(world, `${uid}'`);
  },
  async "stands still"(world, uid) {
    const { random, replicas } = world;
    replicas.get(uid)?.process.stop();
    await advance(world, 10_000 + random() * 80_000);
    replicas.get(uid)?.process.continue();
  },
  async "is cut off from the API server"(world, uid) {
    const { random, replicas } = world;
    replicas.get(uid)?.process.cutOff(true);
    await advance(world, 10_000 + random() * 60_000);
    replicas.get(uid)?.process.cutOff(false);
  },
  async "loses the API server with all others"(world) {
    const { random, replicas } = world;
    for (const { process } of replicas.values()) process.cutOff(true);
    await advance(world, 10_000 + random() * 120_000);
    for (const { process } of replicas.values()) process.cutOff(false);
  },
  async "is refused most requests, like all others"(world) {
    world.api.refuse(true);
    await advance(world, 60_000);
    world.api.refuse(false);
  },
  async "does not reach half of the machines"(world, uid) {
    const { random, interrupted } = world;
    const ways = reached.filter(() => random() < 0.5).map((name) => wayOf(uid, name));
    for (const way of ways) interrupted.add(way);
    await advance(world, 10_000 + random() * 200_000);
    for (const way of ways) interrupted.delete(way);
  },
  async "is shut down and replaced"(world, uid) {
    const replica = world.replicas.get(uid);
    replica?.stop.abort();
    startReplica(world, `${uid}"`);
    await advance(world, 25_000);
    world.replicas.delete(uid);
  },
};

for (const seed of [1, 2, 3, 4])
  test(`each object is served again after faults, in growing epochs (seed ${seed})`, { timeout: 60_000 }, async () => {
    using world = createWorld(seed);
    for (const uid of ["a", "b", "c"]) startReplica(world, uid);
    await untilServed(world, "start");
    const names = Object.keys(faults);
    for (let round = 0; round < 8; round += 1) {
      const name = names[Math.floor(world.random() * names.length)] ?? "";
      const uid = [...world.replicas.keys()][Math.floor(world.random() * world.replicas.size)] ?? "";
      await faults[name]?.(world, uid);
      await untilServed(world, `round ${round}: replica ${uid} ${name}`);
      checkEpochs(world);
    }
  });

test("nobody takes anything while the API server is away from all, and nothing moves when it is back", async () => {
  using world = createWorld(7);
  for (const uid of ["a", "b", "c"]) startReplica(world, uid);
  await untilServed(world, "start");
  await advance(world, 30_000);
  const changes = world.api.ownerChanges.length;
  await faults["loses the API server with all others"]?.(world, "");
  await advance(world, 60_000);
  assert.equal(world.api.ownerChanges.length, changes);
});

test("objects of a killed replica are served by others within 20 s", async () => {
  using world = createWorld(11);
  for (const uid of ["a", "b", "c"]) startReplica(world, uid);
  await untilServed(world, "start");
  const from = world.clock.monotonic();
  world.replicas.get("a")?.process.kill();
  await untilServed(world, "after the kill");
  assert.ok(world.clock.monotonic() - from <= 20_000, String(world.clock.monotonic() - from));
});

test("a replica that shuts down hands its objects over within seconds", async () => {
  using world = createWorld(13);
  for (const uid of ["a", "b", "c"]) startReplica(world, uid);
  await untilServed(world, "start");
  await advance(world, 20_000);
  const from = world.clock.monotonic();
  world.replicas.get("a")?.stop.abort();
  await advance(world, 100);
  while (reached.some((name) => ["a", ""].includes(ownerOf(world, name)?.uid ?? ""))) {
    assert.ok(world.clock.monotonic() - from <= 5_000, "handed over");
    await advance(world, 100);
  }
  await untilServed(world, "after the shutdown");
});

test("a machine with two connections at once changes its owner once, to the replica of the newer one", async () => {
  using world = createWorld(17);
  for (const uid of ["a", "b", "c"]) startReplica(world, uid);
  await untilServed(world, "start");
  await advance(world, 30_000);
  const owner = ownerOf(world, "d-0")?.uid ?? "";
  const other = ["a", "b", "c"].find((uid) => uid !== owner) ?? "";
  const changes = world.api.ownerChanges.length;
  world.tunnels.dial("d-0", other);
  await advance(world, 9_000);
  assert.equal(ownerOf(world, "d-0")?.uid, owner, "the connection has not lasted yet");
  await advance(world, 300_000);
  assert.equal(ownerOf(world, "d-0")?.uid, other);
  assert.equal(world.api.ownerChanges.length, changes + 1);
  assert.deepEqual(unserved(world), []);
});

test("machines that connect stay with the replicas that they have chosen, whatever number that gives", async () => {
  using world = createWorld(19);
  startReplica(world, "a");
  await untilServed(world, "start");
  startReplica(world, "b");
  await advance(world, 60_000);
  assert.deepEqual(
    dialling.map((name) => ownerOf(world, name)?.uid),
    dialling.map(() => "a"),
  );
  assert.equal(reached.filter((name) => ownerOf(world, name)?.uid === "b").length, reached.length / 2);
});

test("a machine that does not connect gets an owner, so that its status says so", async () => {
  using world = createWorld(23);
  for (const uid of ["a", "b"]) startReplica(world, uid);
  await untilServed(world, "start");
  world.api.put("graftednodes", {
    metadata: { name: absent, namespace, uid: absent, generation: 1 },
    spec: { ssh: { reverse: { authorizedKeys: [absent] } } },
  } as unknown as GraftedNode);
  await advance(world, 10_000);
  const { owner, conditions } = objectOf(world, absent)?.status ?? {};
  assert.match(owner?.uid ?? "", /^[ab]$/);
  assert.equal(conditions?.find(({ type }) => type === "Linked")?.reason, "ReverseTunnelDown");
});
