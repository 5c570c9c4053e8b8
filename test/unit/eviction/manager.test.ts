import assert from "node:assert/strict";
import { test } from "node:test";
import { createEvict } from "../../../src/eviction/evict.ts";
import { createEviction } from "../../../src/eviction/manager.ts";
import { createLocalLimits } from "../../../src/eviction/local-limits.ts";
import { ContainerState, ContainerStats } from "../../../src/gen/cri.ts";
import { createDiskMeter } from "../../../src/host/disk-meter.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { PodSpec } from "../../../src/objects.ts";
import type { Rejection } from "../../../src/pipeline.ts";
import { allContainers } from "../../../src/pod/containers.ts";
import { containerNameLabel, podUidLabel } from "../../../src/pod/labels.ts";
import type { WorkerPhase } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { fakeHost } from "../../fakes/host.ts";
import { type TestPod, aContainer, aPod, aStatus, observe } from "../../fakes/pods.ts";
import { fakeTargetGate } from "../../fakes/target-gate.ts";

const mebibyte = 2 ** 20;
const rootDir = "/var/lib/kubelet";

const volumeOf = (uid: string, name: string) => ({
  hostPath: `${rootDir}/pods/${uid}/volumes/${name}`,
  readOnly: false,
});

/** A node with these pods, on a target where paths ending in the keys of `used` take that many MiB. */
async function node(
  pods: readonly TestPod[],
  used: Readonly<Record<string, number>> = {},
  layers: readonly ContainerStats[] = [],
) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  await host.fs.apply([{ kind: "mkdir", path: rootDir, parents: true }]);
  const world = {
    used,
    walks: [] as (readonly string[])[],
    filters: [] as unknown[],
    dedicatedImageFs: false,
    fails: false,
    walkMs: 0,
    allSourcesReady: true,
    /** Pods that terminated before the start, each with whether it is cleaned up. */
    former: new Map<string, boolean>(),
    looks: 0,
    /** Names of terminated containers. */
    over: new Set<string>(),
    /** The phase at which evicted pods stop. */
    lingers: undefined as WorkerPhase | undefined,
    /** Number of observations at each reclaim. */
    acts: [] as number[],
  };
  const workers = new Set<(uid: string) => void>();
  host.program("du", async (args, { stdout }) => {
    const paths = args.slice(1);
    world.walks.push(paths);
    if (world.walkMs > 0) await clock.sleep(world.walkMs);
    for (const path of paths) {
      const [, size] = Object.entries(world.used).find(([end]) => path.endsWith(end)) ?? [];
      if (size !== undefined) stdout.write(`${size * 1024}\t${path}\n`);
    }
    return world.fails ? 2 : 1;
  });
  const counted: string[] = [];
  const evicted: (Rejection & { readonly uid: string; readonly graceSeconds: number })[] = [];
  const events = eventLines();
  const target = fakeTargetGate();
  const stop = new AbortController();
  const log = silentLog();
  const phaseOf = (uid: string): WorkerPhase => {
    const isEvicted = evicted.some((one) => one.uid === uid);
    if (isEvicted && world.lingers) return world.lingers;
    return isEvicted || world.former.get(uid) ? "finished" : "syncing";
  };
  const worker = {
    get: (uid: string) => ({
      phase: phaseOf(uid),
      pod: undefined,
    }),
    onChange: (listener: (uid: string) => void) => {
      workers.add(listener);
      return () => workers.delete(listener);
    },
  };
  const evict = createEvict({
    worker,
    onEnd: () => {},
    signals: {
      terminatePod: {
        send(uid, { graceSeconds = 0, eviction }) {
          if (eviction) evicted.push({ uid, ...eviction, graceSeconds });
        },
      },
    },
    events,
    measures: { evicted: (signal) => void counted.push(signal) },
    log,
  });
  const { CONTAINER_EXITED: exited, CONTAINER_RUNNING: running } = ContainerState;
  const runsOf = (pod: TestPod) =>
    allContainers(pod).map(({ container }) => aStatus(container, world.over.has(container.name) ? exited : running));
  const podCache = {
    get: (uid: string) => observe([], pods.filter(({ metadata }) => metadata.uid === uid).flatMap(runsOf)),
  };
  const enforceLocalLimits = createLocalLimits({
    podCache,
    disk: createDiskMeter({ host, clock }),
    runtime: { listContainerStats: async (filter) => (world.filters.push(filter?.labelSelector), layers) },
    volumes: {
      mounted: (uid) => new Map(["v", "w", "m"].map((name) => [name, volumeOf(uid, name)])),
    },
    rootDir,
    podLogsDir: "/var/log/pods",
    desired: { list: () => pods.filter(({ metadata }) => !evicted.some(({ uid }) => uid === metadata.uid)) },
    evict,
    clock,
  });
  const eviction = createEviction({
    changed: undefined,
    observeNode: async () => {
      world.looks += 1;
      return {
        disks: { dedicatedImageFs: world.dedicatedImageFs, splitContainerFs: false },
        reclaim: async () => {
          world.acts.push(world.looks);
          return undefined;
        },
      };
    },
    terminatedPods: () => [...world.former.keys()].map((uid) => aPod({}, { uid })),
    allSourcesReady: () => world.allSourcesReady,
    events,
    enforceLocalLimits,
    worker,
    waitForTarget: target.present,
    clock,
    log,
  });
  let passes = 0;
  const service = eviction.run(stop.signal);
  return {
    world,
    target,
    events,
    evicted,
    counted,
    advance: clock.advance,
    /** A terminated pod is cleaned up. */
    gone(uid: string) {
      world.former.set(uid, true);
      for (const listener of workers) listener(uid);
    },
    /** The first pass starts at once. */
    pass: () => clock.advance(passes++ === 0 ? 0 : 10_000),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await service;
    },
  };
}

const withVolume = (
  sizeLimit: string | undefined,
  more: Partial<PodSpec> = {},
  metadata: Partial<TestPod["metadata"]> = {},
) => aPod({ volumes: [{ name: "v", emptyDir: { ...(sizeLimit !== undefined && { sizeLimit }) } }], ...more }, metadata);
const limited = (name: string, limit: string) =>
  aContainer(name, { resources: { limits: { "ephemeral-storage": limit } } });

test("evicts a pod if an emptyDir exceeds its size limit, with the kubelet's message", async () => {
  await using t = await node([withVolume("10Mi")], { "volumes/v": 10 });
  await t.pass();
  assert.equal(t.evicted.length, 0, "as much as it may");
  t.world.used = { "volumes/v": 11 };
  await t.pass();
  await t.pass();
  const message = 'Usage of EmptyDir volume "v" exceeds the limit "10Mi". ';
  assert.deepEqual(t.evicted, [{ uid: "uid-1", reason: "Evicted", message, graceSeconds: 1 }]);
  assert.deepEqual(t.events.lines, [`Warning Evicted ${message}`]);
  assert.deepEqual(t.counted, ["emptydirfs.limit"]);
});

test("counts data written by ephemeral containers towards their pod", async () => {
  const debugging = aPod({
    containers: [limited("main", "10Mi")],
    ephemeralContainers: [{ name: "debug", image: "i" }],
  });
  await using t = await node([debugging], { "uid-1/debug": 10 });
  await t.pass();
  assert.equal(t.evicted.length, 0, "as much as it may");
  t.world.used = { "uid-1/debug": 11 };
  await t.pass();
  assert.deepEqual(t.counted, ["ephemeralpodfs.limit"]);
});

test("measures only pods with limits, but not critical or terminated pods", async () => {
  const over = { ...withVolume("1Mi", {}, { uid: "over" }), status: { phase: "Failed" } };
  await using t = await node(
    [withVolume(undefined), withVolume("0"), withVolume("1Mi", { priority: 2_000_000_000 }), over],
    { "volumes/v": 99 },
  );
  await t.pass();
  assert.deepEqual([t.world.walks, t.world.filters], [[], []]);
});

test("enforces limits of a terminating pod until it has ended", async () => {
  await using t = await node([withVolume("1Mi", {}, { deletionTimestamp: "2026-01-01T00:00:00Z" })], {
    "volumes/v": 2,
  });
  await t.pass();
  assert.deepEqual(
    t.evicted.map(({ reason, graceSeconds }) => [reason, graceSeconds]),
    [["Evicted", 1]],
  );
});

test("measures the volumes of all pods in one walk, without other calls", async () => {
  const two = [
    { name: "v", emptyDir: { sizeLimit: "1Mi" } },
    { name: "w", emptyDir: {} },
  ];
  await using t = await node([withVolume("1Mi", {}, { uid: "a" }), aPod({ volumes: two }, { uid: "b" })]);
  await t.pass();
  assert.deepEqual(t.world.walks, [["a", "b"].map((uid) => `${rootDir}/pods/${uid}/volumes/v`)]);
  assert.deepEqual(t.world.filters, []);
});

const layer = (name: string, mebibytes: number, attempt: number, uid = "uid-1") =>
  ContainerStats.fromPartial({
    attributes: {
      id: `${name}-${attempt}`,
      metadata: { name, attempt },
      labels: { [podUidLabel]: uid, [containerNameLabel]: name },
    },
    writableLayer: { usedBytes: { value: BigInt(mebibytes * mebibyte) } },
  });

test("a container's limit covers the writable layer and logs of its latest instance", async () => {
  const pod = aPod({ containers: [limited("a", "10Mi"), limited("b", "90Mi")] });
  await using t = await node([pod], { "uid-1/a": 3, "uid-1/b": 20 }, [
    layer("a", 8, 1),
    layer("a", 90, 0),
    layer("b", 50, 0),
  ]);
  await t.pass();
  assert.equal(t.evicted[0]?.message, 'Container a exceeded its local ephemeral storage limit "10Mi". ');
  assert.deepEqual(t.world.filters, [{ [podUidLabel]: "uid-1" }]);
  assert.deepEqual(t.counted, ["ephemeralcontainerfs.limit"]);
});

test("writable layers on a dedicated file system count towards the pod's limit, not the container's", async () => {
  const pod = aPod({ containers: [limited("a", "10Mi"), limited("b", "50Mi")] });
  const layers = [layer("a", 20, 0)];
  await using together = await node([pod], {}, layers);
  await together.pass();
  assert.equal(together.evicted[0]?.message, 'Container a exceeded its local ephemeral storage limit "10Mi". ');
  await using apart = await node([pod], {}, layers);
  apart.world.dedicatedImageFs = true;
  await apart.pass();
  assert.equal(apart.evicted.length, 0);
  layers.push(layer("b", 41, 0));
  await apart.pass();
  assert.equal(
    apart.evicted[0]?.message,
    "Pod ephemeral local storage usage exceeds the total limit of containers 60Mi. ",
  );
});

test("all of a pod's disk usage counts towards the sum of its containers' limits", async () => {
  const volumes = [
    { name: "v", emptyDir: {} },
    { name: "w", configMap: { name: "c" } },
    { name: "m", emptyDir: { medium: "Memory" } },
  ];
  const containers = [limited("a", "6Mi"), limited("b", "10Mi")];
  const at = { "uid-1/a": 2, "uid-1/b": 3, "volumes/v": 4, "volumes/w": 1, "volumes/m": 99, "etc-hosts": 1 };
  await using t = await node([aPod({ containers, volumes })], at, [layer("a", 3, 0), layer("b", 2, 0)]);
  await t.pass();
  assert.equal(t.evicted.length, 0, "just as much as they may");
  t.world.used = { ...at, "etc-hosts": 2 };
  await t.pass();
  assert.equal(t.evicted[0]?.message, "Pod ephemeral local storage usage exceeds the total limit of containers 16Mi. ");
  assert.deepEqual(t.counted, ["ephemeralpodfs.limit"]);
  assert.ok(t.world.walks.flat().every((path) => !path.endsWith("volumes/m")));
});

test("logs of terminated containers do not count towards any limit", async () => {
  const containers = [limited("a", "10Mi")];
  const pod = aPod({ containers, initContainers: [limited("first", "10Mi")] });
  await using t = await node([pod], { "uid-1/first": 30, "uid-1/a": 1 });
  t.world.over.add("first");
  await t.pass();
  assert.equal(t.evicted.length, 0);
  t.world.over.delete("first");
  await t.pass();
  assert.deepEqual(t.counted, ["ephemeralpodfs.limit"]);
});

test("a memory-backed emptyDir counts only towards its own limit, not the pod's disk limit", async () => {
  for (const medium of ["Memory", "HugePages-2Mi"]) {
    const volumes = [{ name: "m", emptyDir: { medium, sizeLimit: "60Mi" } }];
    await using t = await node([aPod({ containers: [limited("a", "10Mi")], volumes })], { "volumes/m": 50 });
    await t.pass();
    assert.equal(t.evicted.length, 0);
    t.world.used = { "volumes/m": 61 };
    await t.pass();
    assert.equal(t.evicted[0]?.message, 'Usage of EmptyDir volume "m" exceeds the limit "60Mi". ');
  }
});

test("waits longer until the next round if a walk took longer", async () => {
  await using t = await node([withVolume("1Mi")], { "volumes/v": 1 });
  t.world.walkMs = 4_000;
  await t.pass();
  await t.advance(4_000 + 39_999);
  assert.equal(t.world.walks.length, 1);
  await t.advance(1);
  assert.equal(t.world.walks.length, 2);
});

test("retries after an error on the target, and does not query an unreachable target", async () => {
  await using t = await node([withVolume("1Mi")], { "volumes/v": 2 });
  t.world.fails = true;
  await t.pass();
  t.target.lose();
  t.world.fails = false;
  await t.pass();
  await t.pass();
  assert.deepEqual([t.evicted.length, t.world.walks.length], [0, 1]);
  t.target.find();
  await t.pass();
  assert.equal(t.evicted.length, 1);
});

test("after a start, waits until terminated pods are removed, then observes the node again", async () => {
  await using t = await node([]);
  t.world.allSourcesReady = false;
  await t.pass();
  assert.deepEqual([t.world.looks, t.world.acts], [1, []], "evicts nothing before all pods are known");
  t.world.former.set("former", false);
  t.world.allSourcesReady = true;
  await t.pass();
  await t.advance(1000);
  assert.deepEqual([t.world.looks, t.world.acts], [2, []]);
  t.gone("former");
  await t.advance(0);
  assert.deepEqual([t.world.looks, t.world.acts], [3, [3]]);
  t.world.former.set("later", false);
  await t.advance(10_000);
  assert.deepEqual(t.world.acts, [3, 4], "waits only once");
});

test("waits at most 30 seconds for a pod source to report, and for terminated pods once it does", async () => {
  await using t = await node([]);
  t.world.allSourcesReady = false;
  await t.pass();
  await t.pass();
  await t.pass();
  assert.deepEqual([t.world.looks, t.world.acts], [3, []]);
  await t.pass();
  assert.deepEqual(t.world.acts, [4]);
  t.world.allSourcesReady = true;
  t.world.former.set("former", false);
  await t.pass();
  assert.deepEqual([t.world.looks, t.world.acts], [5, [4]]);
  t.gone("former");
  await t.advance(0);
  assert.deepEqual([t.world.looks, t.world.acts], [6, [4, 6]]);
});

test("waits at most 30 seconds for pods that are not removed", async () => {
  await using t = await node([]);
  t.world.former.set("stuck", false);
  await t.pass();
  await t.advance(29_000);
  assert.deepEqual(t.world.acts, []);
  await t.advance(1_000);
  assert.deepEqual(t.world.acts, [2]);
});

test("observes the node again once an evicted pod is gone, or after its termination and cleanup timeouts", async () => {
  await using t = await node([withVolume("10Mi")], { "volumes/v": 11 });
  t.world.lingers = "terminating";
  await t.pass();
  assert.equal(t.world.looks, 1);
  await t.advance(9_999);
  assert.equal(t.events.lines.length, 1);
  await t.advance(1);
  const told = "Warning ExceededGracePeriod Container runtime did not kill the pod within specified grace period.";
  assert.equal(t.events.lines[1], told);
  t.world.lingers = "terminated";
  t.gone("uid-1");
  await t.advance(29_999);
  assert.equal(t.world.looks, 1);
  await t.advance(1);
  assert.equal(t.world.looks, 2);
  assert.equal(t.evicted.length, 1);
});
