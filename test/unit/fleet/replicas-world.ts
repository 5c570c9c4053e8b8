import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { access } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

export const namespace = "edge";
/** Machines that replicas connect to, and machines that connect to replicas. */
export const reached = Array.from({ length: 8 }, (_, index) => `m-${index}`);
export const dialling = Array.from({ length: 4 }, (_, index) => `d-${index}`);
const machines = [...reached, ...dialling];
/** A machine that would connect to replicas, but does not. */
export const absent = "d-absent";
/** Longest time after the last fault in which each object must have an owner and be served, milliseconds. */
const recoveryMs = 60_000;
/** Step of the model's time, milliseconds. */
const stepMs = 250;

/** A machine's lock: held by one session at a time, and free a while after its holder has died or stands still. */
interface Machine {
  holder: { readonly process: SimulatedProcess; readonly epoch: number } | undefined;
  /** Epochs in which the machine was used, in order. */
  readonly epochs: number[];
}

const tunnelDown = { reason: "ReverseTunnelDown", message: "not connected" } as const;
const linkDown = { reason: "LinkDown", message: "no route to the machine" } as const;

/** Moves time on in small steps, each of which waits for the real file system: members write files. */
export async function advance({ clock, tunnels, directory }: World, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= stepMs) {
    tunnels.step();
    await clock.advance(Math.min(left, stepMs));
    await access(directory);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Replicas, their machines and the API server, in one process and on one clock. Disposing of it ends the replicas. */
export interface World extends Disposable {
  readonly clock: FakeClock;
  /** For the files that members write. */
  readonly directory: string;
  readonly api: SimulatedApi;
  readonly random: () => number;
  readonly tunnels: ReturnType<typeof diallingMachines>;
  readonly targets: ReadonlyMap<string, Machine>;
  readonly replicas: Map<string, Replica>;
  /** Ways that are interrupted, as the UID of a replica and the name of a machine. */
  readonly interrupted: Set<string>;
}

export const wayOf = (uid: string, name: string) => `${uid} ${name}`;

interface Replica {
  readonly process: SimulatedProcess;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

export function createWorld(seed: number): World {
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
  const directory = mkdtempSync(join(tmpdir(), "graftlet-model-"));
  const replicas: World["replicas"] = new Map();
  return {
    clock,
    directory,
    api,
    random,
    tunnels,
    targets,
    replicas,
    interrupted: new Set(),
    [Symbol.dispose]() {
      for (const { process, stop } of replicas.values()) {
        process.kill();
        stop.abort();
      }
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

export const objectOf = ({ api }: World, name: string) =>
  api.objects("graftednodes").find(({ metadata }) => metadata.name === name) as GraftedNode | undefined;
export const ownerOf = (world: World, name: string) => objectOf(world, name)?.status?.owner;

/** Frees the machine's lock if its holder cannot keep it: it has died, or another replica has claimed the machine with a later epoch. */
function settleLock(world: World, name: string, claimant: number): void {
  const machine = world.targets.get(name);
  if (!machine?.holder) return;
  const { process, epoch } = machine.holder;
  if (process.state() === "dead" || epoch < claimant) machine.holder = undefined;
}

export function startReplica(world: World, uid: string): void {
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
      directory: join(world.directory, uid),
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
        // Only a running process acts on its machine: one that stands still does not get here.
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
export function unserved(world: World): readonly string[] {
  return machines.filter((name) => {
    const owner = ownerOf(world, name)?.uid ?? "";
    const replica = world.replicas.get(owner);
    return replica?.process.state() !== "running" || world.targets.get(name)?.holder?.process !== replica.process;
  });
}

export async function untilServed(world: World, what: string): Promise<void> {
  const from = world.clock.monotonic();
  while (unserved(world).length > 0) {
    const waited = world.clock.monotonic() - from;
    const owners = () => machines.map((name) => `${name}: ${JSON.stringify(ownerOf(world, name))}`).join("\n");
    assert.ok(waited <= recoveryMs, `${what}: not served after ${waited} ms: ${unserved(world).join()}\n${owners()}`);
    await advance(world, 500);
  }
}

/** Epochs of each object grow by one with each owner, and each machine is used in growing epochs. */
export function checkEpochs({ api, targets }: World): void {
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
