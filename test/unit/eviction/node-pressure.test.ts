import assert from "node:assert/strict";
import { test } from "node:test";
import type { PodUsage } from "../../../src/eviction/ports.ts";
import { createEvict } from "../../../src/eviction/evict.ts";
import { createNodePressure, type NodePressureDeps } from "../../../src/eviction/node-pressure.ts";
import type { NodeSignal } from "../../../src/eviction/signals.ts";
import type { DiskLayout } from "../../../src/eviction/thresholds.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { NodePressure, Rejection } from "../../../src/pipeline.ts";
import { createValue } from "../../../src/state/values.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { aPod, type TestPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

/** A node with these available amounts, of 1000 each. */
function node(pods: readonly TestPod[], settings: Partial<NodePressureDeps["settings"]> = {}) {
  const clock = fakeClock();
  const world = {
    available: {} as Partial<Record<NodeSignal, number>>,
    disks: { dedicatedImageFs: false, splitContainerFs: false } as DiskLayout,
    usage: new Map<string, PodUsage>(),
    problem: undefined as string | undefined,
    afterImages: undefined as Partial<Record<NodeSignal, number>> | undefined,
    fails: false,
    /** Terminated pods. */
    stopped: new Set<string>(),
  };
  const did: string[] = [];
  const ended: (Partial<Rejection> & { uid: string; graceSeconds: number | undefined })[] = [];
  const events = eventLines();
  const cell = createValue<NodePressure>();
  const log = silentLog();
  const look = createNodePressure({
    settings: {
      evictionHard: { "memory.available": "100", "nodefs.available": "100", "pid.available": "100" },
      evictionSoft: {},
      evictionSoftGracePeriod: {},
      evictionMinimumReclaim: {},
      enforceNodeAllocatable: [],
      transitionMs: 300_000,
      maxPodGraceSeconds: 0,
      ...settings,
    },
    nodeName: "n",
    observe: async () => ({
      observations: new Map(
        Object.entries(world.available).map(([name, available]) => [name as NodeSignal, { available, capacity: 1000 }]),
      ),
      memory: new Map(),
      disks: world.disks,
      problem: world.problem,
    }),
    candidates: () => pods,
    usages: { now: async (files) => (did.push(files ? "measure files" : "measure"), world.usage) },
    reclaim: {
      async deleteUnusedContainers() {
        did.push("containers");
        if (world.fails) throw new Error("the runtime is away");
      },
      async deleteUnusedImages() {
        did.push("images");
        world.available = world.afterImages ?? world.available;
        return 0;
      },
    },
    evict: createEvict({
      worker: { get: (uid) => ({ phase: world.stopped.has(uid) ? "terminated" : "syncing", pod: undefined }) },
      onEnd: () => {},
      signals: {
        terminatePod: {
          send: (uid, { graceSeconds, eviction }) => void ended.push({ uid, graceSeconds, ...eviction }),
        },
      },
      events,
      measures: { evicted: (signal) => void did.push(`count ${signal}`) },
      log,
    }),
    pressure: cell.writer,
    signals: { nodeChanged: { send: () => void did.push("tell") } },
    events,
    measures: { observationAge: () => {} },
    clock,
    log,
  });
  const round = async () => {
    const { reclaim } = await look(never);
    return (await reclaim(never))?.pod.metadata.name;
  };
  return { world, did, ended, events, cell, clock, round };
}

const small = aPod({}, { name: "small", uid: "small" });
const big = aPod({ terminationGracePeriodSeconds: 40 }, { name: "big", uid: "big" });
const critical = aPod({ priority: 2_000_000_000 }, { name: "critical", uid: "critical" });
const using = (memoryBytes: number): PodUsage => ({ memoryBytes, containers: new Map(), volumes: new Map() });

test("evicts nothing and measures no pods if no threshold is met", async () => {
  const { world, did, cell, round } = node([small]);
  world.available = { "memory.available": 500, "nodefs.available": 500 };
  assert.equal(await round(), undefined);
  assert.deepEqual(cell.reader.get(), { pressure: { memory: false, disk: false, pid: false }, problem: undefined });
  assert.equal(await round(), undefined);
  assert.deepEqual(did, ["tell"], "once, when the last value was known");
});

test("memory pressure evicts the pod that uses most, one pod per round and none twice, with the kubelet's messages", async () => {
  const { world, did, ended, events, round } = node([small, critical, big]);
  world.available = { "memory.available": 90 };
  world.usage = new Map([
    ["small", using(10)],
    ["critical", using(999)],
    ["big", using(500)],
  ]);
  assert.equal(await round(), "big");
  const message = "The node was low on resource: memory. Threshold quantity: 100, available: 90. ";
  assert.deepEqual(ended, [{ uid: "big", graceSeconds: 1, reason: "Evicted", message, disruption: message }]);
  assert.deepEqual(events.lines, [
    "Warning EvictionThresholdMet Attempting to reclaim memory",
    `Warning Evicted ${message}`,
  ]);
  assert.deepEqual(did, ["tell", "measure", "count memory.available"]);
  assert.equal(await round(), "big", "evicts no other pod while it terminates");
  assert.deepEqual([ended.length, events.lines.filter((line) => line.includes("Evicted")).length], [1, 1]);
  assert.ok(!did.slice(3).some((what) => what.startsWith("count")));
  world.stopped.add("big");
  assert.equal(await round(), "small");
  world.stopped.add("small");
  assert.equal(await round(), undefined, "only a critical pod remains");
});

test("disk pressure first removes unused containers and images, and evicts pods only if that is not enough", async () => {
  const { world, did, round } = node([small]);
  world.available = { "nodefs.available": 50 };
  world.afterImages = { "nodefs.available": 500 };
  assert.equal(await round(), undefined);
  assert.deepEqual(did, ["tell", "containers", "images"]);
  world.available = world.afterImages = { "nodefs.available": 50 };
  world.fails = true;
  assert.equal(await round(), "small");
  assert.deepEqual(did.slice(3), ["containers", "images", "measure files", "count nodefs.available"]);
});

test("garbage-collects only on the file system that is under pressure", async () => {
  const steps = async (signal: NodeSignal, disks: DiskLayout) => {
    const { world, did, round } = node([], { evictionHard: { "nodefs.available": "100", "imagefs.available": "100" } });
    world.disks = disks;
    world.available = { [signal]: 1 };
    await round();
    return did.slice(1).join(" ");
  };
  const apart = { dedicatedImageFs: true, splitContainerFs: false };
  const split = { dedicatedImageFs: true, splitContainerFs: true };
  assert.equal(await steps("nodefs.available", apart), "");
  assert.equal(await steps("imagefs.available", apart), "containers images");
  assert.equal(await steps("containerfs.available", apart), "containers images");
  assert.equal(await steps("nodefs.available", split), "containers");
  assert.equal(await steps("imagefs.available", split), "images");
});

test("a soft eviction allows the shorter of the pod's and the configured grace period", async () => {
  const soft = {
    evictionHard: {},
    evictionSoft: { "pid.available": "100" },
    evictionSoftGracePeriod: { "pid.available": 30_000 },
  };
  const grace = async (maxPodGraceSeconds: number, pod: TestPod) => {
    const { world, ended, clock, round } = node([pod], { ...soft, maxPodGraceSeconds });
    world.available = { "pid.available": 1 };
    await round();
    await clock.advance(30_000);
    await round();
    return ended[0]?.graceSeconds;
  };
  assert.deepEqual([await grace(60, big), await grace(20, big), await grace(0, big)], [40, 20, 0]);
});

test("reports a target that cannot be read, and keeps the conditions", async () => {
  const { world, cell, did, round } = node([]);
  world.available = { "memory.available": 1 };
  await round();
  world.available = {};
  world.problem = "no /proc/meminfo";
  await round();
  assert.deepEqual(cell.reader.get(), {
    pressure: { memory: true, disk: false, pid: false },
    problem: "no /proc/meminfo",
  });
  assert.deepEqual(did, ["tell", "tell"]);
});
