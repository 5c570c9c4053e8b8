import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { access } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { NodeConfig } from "../../../src/config/node-config.ts";
import { createFleet } from "../../../src/fleet/fleet.ts";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createSignal } from "../../../src/lib/signal.ts";
import { createReportedNode } from "../../../src/report/reported-node.ts";
import { fakeClock, type FakeClock } from "../../fakes/clock.ts";
import { diallingMachines } from "../../fakes/dialling.ts";
import { createChance } from "../../harness/chance.ts";
import { type SimulatedApi, simulatedApi, type SimulatedProcess, simulatedProcess } from "../../fakes/fleet-world.ts";

const namespace = "edge";
/** Machines that replicas connect to, and machines that connect to replicas. */
const reached = Array.from({ length: 8 }, (_, index) => `m-${index}`);
const dialling = Array.from({ length: 4 }, (_, index) => `d-${index}`);
const machines = [...reached, ...dialling];
/** A machine that would connect to replicas, but does not. */
const absent = "d-absent";
/** Longest time after the last fault in which each object must have an owner and be served, milliseconds. */
const recoveryMs = 60_000;
/** Step of the model's time, milliseconds. */
const stepMs = 250;
const directory = mkdtempSync(join(tmpdir(), "graftlet-model-"));

/** A machine's lock: held by one session at a time, and free a while after its holder has died or stands still. */
interface Machine {
  holder: { readonly process: SimulatedProcess; readonly epoch: number } | undefined;
  /** Epochs in which the machine was used, in order. */
  readonly epochs: number[];
}

const tunnelDown = { reason: "ReverseTunnelDown", message: "not connected" } as const;
const linkDown = { reason: "LinkDown", message: "no route to the machine" } as const;

/** Moves time on in small steps, each of which waits for the real file system: members write files. */
async function advance({ clock, tunnels }: World, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= stepMs) {
    tunnels.step();
    await clock.advance(Math.min(left, stepMs));
    await access(directory);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

interface World {
  readonly clock: FakeClock;
  readonly api: SimulatedApi;
  readonly random: () => number;
  readonly tunnels: ReturnType<typeof diallingMachines>;
  readonly targets: ReadonlyMap<string, Machine>;
  readonly replicas: Map<string, Replica>;
  /** Ways that are interrupted, as the UID of a replica and the name of a machine. */
  readonly interrupted: Set<string>;
}

const wayOf = (uid: string, name: string) => `${uid} ${name}`;

interface Replica {
  readonly process: SimulatedProcess;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

function createWorld(seed: number): World {
  const clock = fakeClock();
  const api = simulatedApi(clock);
  for (const name of machines)
    api.put("graftednodes", {
      metadata: { name, namespace, uid: `uid-${name}`, generation: 1 },
      spec: { ssh: dialling.includes(name) ? { reverse: { authorizedKeys: [name] } } : { host: name } },
    } as unknown as GraftedNode);
  const targets = new Map<string, Machine>(
    [...machines, absent].map((name) => [name, { holder: undefined, epochs: [] }]),
  );
  const chance = createChance(seed);
  const random = () => chance.between(0, 1);
  const tunnels = diallingMachines(clock, random, dialling);
  return { clock, api, random, tunnels, targets, replicas: new Map(), interrupted: new Set() };
}

const objectOf = ({ api }: World, name: string) =>
  api.objects("graftednodes").find(({ metadata }) => metadata.name === name) as GraftedNode | undefined;
const ownerOf = (world: World, name: string) => objectOf(world, name)?.status?.owner;

/** Frees the machine's lock if its holder cannot keep it: it has died, or another replica has claimed the machine with a later epoch. */
function settleLock(world: World, name: string, claimant: number): void {
  const machine = world.targets.get(name);
  if (!machine?.holder) return;
  const { process, epoch } = machine.holder;
  if (process.state() === "dead" || epoch < claimant) machine.holder = undefined;
}

function startReplica(world: World, uid: string): void {
  const process = simulatedProcess(world.clock, world.api, world.random, uid);
  const { clock, client } = process;
  const isReached = (name: string) => reached.includes(name) && !world.interrupted.has(wayOf(uid, name));
  const isConnected = (name: string) => isReached(name) || world.tunnels.isAt(name, uid);
  const reports = new Map<string, ReturnType<typeof createReportedNode>>();
  /** A target's link, which is down while the machine is not connected to this replica. */
  const openLink = (name: string) => {
    const changed = createSignal();
    const trouble = () => (isConnected(name) ? undefined : reached.includes(name) ? linkDown : tunnelDown);
    reports.get(name)?.onTargetOpened({ trouble, onChange: changed.subscribe });
    return changed;
  };
  const fleet = createFleet({
    clock,
    client,
    log: silentLog(),
    namespace,
    self: { name: uid, uid },
    usedPorts: [],
    isConfigured: () => false,
    addresses: () => ["10.0.0.9"],
    listeners: async () => world.tunnels.listenersOf(uid, process),
    fleet: {
      release: "r",
      nodeNames: ["*-*"],
      mayHave: () => true,
      directory: join(directory, uid),
      hasServices: false,
      listener: { port: 2222, hostKeyFile: "listener" },
      decodeNode: ({ name, port }) => ({ nodeName: name, kubelet: { port } }) as unknown as NodeConfig,
    },
    addNode(name) {
      const report = createReportedNode({ name, provider: "ssh" });
      reports.set(name, report);
      return { report, log: silentLog(), [Symbol.dispose]: () => undefined };
    },
    onListed: () => undefined,
    async reach({ nodeName }, signal) {
      await clock.sleep(100, signal);
      if (!isReached(nodeName)) throw new Error(linkDown.message);
    },
    async run({ nodeName }, _parts, signal) {
      const machine = world.targets.get(nodeName);
      assert.ok(machine);
      const link = openLink(nodeName);
      while (!signal.aborted) {
        // What a process does in this moment, it does on the machine: one that stands still does nothing.
        const epoch = ownerOf(world, nodeName)?.uid === uid ? (ownerOf(world, nodeName)?.epoch ?? 0) : 0;
        if (isConnected(nodeName)) settleLock(world, nodeName, epoch);
        else if (machine.holder?.process === process) machine.holder = undefined;
        if (!machine.holder && epoch > 0 && isConnected(nodeName)) {
          machine.holder = { process, epoch };
          if (machine.epochs.at(-1) !== epoch) machine.epochs.push(epoch);
        }
        link.send();
        await clock.sleep(500, signal).catch(() => undefined);
      }
      if (machine.holder?.process === process) machine.holder = undefined;
    },
    withNodeClient: () => Promise.reject(new Error("unused")),
    clean: () => Promise.reject(new Error("unused")),
  });
  const stop = new AbortController();
  world.replicas.set(uid, { process, stop, ended: fleet.run(stop.signal) });
}

/** Names of the machines that no running replica serves. */
function unserved(world: World): readonly string[] {
  return machines.filter((name) => {
    const owner = ownerOf(world, name)?.uid ?? "";
    const replica = world.replicas.get(owner);
    return replica?.process.state() !== "running" || world.targets.get(name)?.holder?.process !== replica.process;
  });
}

async function untilServed(world: World, what: string): Promise<void> {
  const from = world.clock.monotonic();
  while (unserved(world).length > 0) {
    const waited = world.clock.monotonic() - from;
    const owners = () => machines.map((name) => `${name}: ${JSON.stringify(ownerOf(world, name))}`).join("\n");
    assert.ok(waited <= recoveryMs, `${what}: not served after ${waited} ms: ${unserved(world).join()}\n${owners()}`);
    await advance(world, 500);
  }
}

/** Epochs of each object grow by one with each owner, and each machine is used in growing epochs. */
function checkEpochs({ api, targets }: World): void {
  for (const name of machines) {
    const taken = api.ownerChanges.filter((change) => change.name === name && change.uid !== "");
    assert.deepEqual(
      taken.map(({ epoch }) => epoch),
      taken.map((_, index) => index + 1),
      name,
    );
    const { epochs = [] } = targets.get(name) ?? {};
    assert.deepEqual(
      epochs,
      [...new Set(epochs)].toSorted((one, other) => one - other),
      name,
    );
  }
}

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

async function end(world: World): Promise<void> {
  for (const { process, stop } of world.replicas.values()) {
    process.kill();
    stop.abort();
  }
}

for (const seed of [1, 2, 3, 4])
  test(`each object is served again after faults, in growing epochs (seed ${seed})`, { timeout: 60_000 }, async () => {
    const world = createWorld(seed);
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
    await end(world);
  });

test("nobody takes anything while the API server is away from all, and nothing moves when it is back", async () => {
  const world = createWorld(7);
  for (const uid of ["a", "b", "c"]) startReplica(world, uid);
  await untilServed(world, "start");
  await advance(world, 30_000);
  const changes = world.api.ownerChanges.length;
  await faults["loses the API server with all others"]?.(world, "");
  await advance(world, 60_000);
  assert.equal(world.api.ownerChanges.length, changes);
  await end(world);
});

test("objects of a killed replica are served by others within 20 s", async () => {
  const world = createWorld(11);
  for (const uid of ["a", "b", "c"]) startReplica(world, uid);
  await untilServed(world, "start");
  const from = world.clock.monotonic();
  world.replicas.get("a")?.process.kill();
  await untilServed(world, "after the kill");
  assert.ok(world.clock.monotonic() - from <= 20_000, String(world.clock.monotonic() - from));
  await end(world);
});

test("a replica that shuts down hands its objects over within seconds", async () => {
  const world = createWorld(13);
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
  await end(world);
});

for (const [what, isLost, seed] of [
  ["a machine", (name: string) => name === "m-0", 29],
  ["each of many machines", (name: string) => reached.includes(name), 37],
] as const)
  test(`${what} that only its owner does not reach is taken once, and its former owner gets no other`, async () => {
    const world = createWorld(seed);
    for (const uid of ["a", "b", "c"]) startReplica(world, uid);
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
    await end(world);
  });

test("a machine that no replica reaches stays with its owner", async () => {
  const world = createWorld(31);
  for (const uid of ["a", "b", "c"]) startReplica(world, uid);
  await untilServed(world, "start");
  const owner = ownerOf(world, "m-0");
  for (const uid of ["a", "b", "c"]) world.interrupted.add(wayOf(uid, "m-0"));
  await advance(world, 600_000);
  assert.deepEqual(ownerOf(world, "m-0"), owner);
  for (const uid of ["a", "b", "c"]) world.interrupted.delete(wayOf(uid, "m-0"));
  await untilServed(world, "after the interruption");
  assert.deepEqual(ownerOf(world, "m-0"), owner);
  await end(world);
});

test("a machine with two connections at once changes its owner once, to the replica of the newer one", async () => {
  const world = createWorld(17);
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
  await end(world);
});

test("machines that connect stay with the replicas that they have chosen, whatever number that gives", async () => {
  const world = createWorld(19);
  startReplica(world, "a");
  await untilServed(world, "start");
  startReplica(world, "b");
  await advance(world, 60_000);
  assert.deepEqual(
    dialling.map((name) => ownerOf(world, name)?.uid),
    dialling.map(() => "a"),
  );
  assert.equal(reached.filter((name) => ownerOf(world, name)?.uid === "b").length, reached.length / 2);
  await end(world);
});

test("a machine that does not connect gets an owner, so that its status says so", async () => {
  const world = createWorld(23);
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
  await end(world);
});

test.after(() => rmSync(directory, { recursive: true, force: true }));
