import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { noTracer } from "../../../src/lib/tracer.ts";
import type { SourceName } from "../../../src/pipeline.ts";
import type { Passes } from "../../../src/sync/pod-worker.ts";
import { createHousekeeping } from "../../../src/sync/housekeeping.ts";
import { createPodWorkers } from "../../../src/sync/pod-workers.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type TestPod, aPod, aSandbox, observe } from "../../fakes/pods.ts";
import { type FakePresence, fakeTargetGate } from "../../fakes/target-gate.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { createSignals } from "../../../src/state/signals.ts";

const log = silentLog();
const named = (uid: string): TestPod => aPod({}, { uid, name: uid });

/** Real workers over passes that write down what they do. */
function rig(t: TestContext, over: Partial<Passes> = {}, target?: FakePresence) {
  const clock = fakeClock();
  const stop = new AbortController();
  const calls: string[] = [];
  const world = {
    wanted: [] as TestPod[],
    inRuntime: [] as string[],
    onDisk: [] as string[],
    seen: true,
    sweepFails: false,
    sources: ["api"] as SourceName[],
    waiting: [] as string[],
    /** Leftovers that the last round could not clear away. */
    swept: "",
    /** Orphans found in the runtime. */
    orphans: 0,
    /** Of the pods in the runtime. */
    annotations: {} as Record<string, string>,
  };
  // Nothing is seen before the test has set the scene.
  let started = false;
  const passes: Passes = {
    sync: async (pod) => (calls.push(`sync ${pod.metadata.uid}`), { terminal: false, requeueAfterMs: 60_000 }),
    terminating: async (uid) => void calls.push(`terminating ${uid}`),
    terminated: async (uid) => void calls.push(`terminated ${uid}`),
    objectChanged: () => undefined,
    ...over,
  };
  const runtimePod = (uid: string) => ({ ...observe([aSandbox({ annotations: world.annotations })], []), uid });
  const { worker } = createPodTable(clock);
  const measures = unmeasured.workers;
  const signals = createSignals();
  const common = { measures, tracer: noTracer, waitForTarget: undefined, clock, log, stop: stop.signal };
  const workers = createPodWorkers({ passes, worker: worker.writer, signals, ...common });
  const housekeeping = createHousekeeping({
    desired: {
      get: (uid) => world.wanted.find(({ metadata }) => metadata.uid === uid),
      byName: () => undefined,
      list: () => world.wanted,
    },
    workers,
    worker: worker.reader,
    waitForTarget: target?.present,
    clock,
    log,
    podCache: {
      get: (uid) => (world.inRuntime.includes(uid) ? runtimePod(uid) : undefined),
      list: () => world.inRuntime.map(runtimePod),
    },
    allSourcesReady: () => started && world.seen,
    sourcesReady: {
      get names() {
        return world.sources;
      },
    },
    measures: {
      cleanedUp: (pods, failed) => void (world.swept = `${failed} of ${pods}`),
      orphanFound: () => (world.orphans += 1),
    },
    isWaiting: (uid) => world.waiting.includes(uid),
    resumeWaiting: () => {
      if (world.waiting.every((uid) => !worker.reader.get(uid))) world.waiting = [];
    },
    directories: async () => world.onDisk,
    pruneRecords: (known) => void calls.push(`keep ${[...known].sort().join()}`),
    async cleanUpPod(uid, countsOn) {
      calls.push(`sweep ${uid}${countsOn ? " but containers" : ""}`);
      if (world.sweepFails) throw new Error("busy");
      world.inRuntime = world.inRuntime.filter((each) => each !== uid);
      world.onDisk = world.onDisk.filter((each) => each !== uid);
    },
  });
  const done = housekeeping.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
  });
  const advance = async (ms: number) => {
    started = true;
    await clock.advance(ms);
  };
  return { advance, calls, world, workers, worker: worker.reader, signals };
}

test("does not terminate unknown pods before every source has reported", async (t) => {
  const { advance, calls, world } = rig(t);
  Object.assign(world, { inRuntime: ["x"], onDisk: ["y"], seen: false });
  await advance(10_000);
  assert.equal(calls.length, 0);
  world.seen = true;
  await advance(2_000);
  assert.ok(calls.includes("terminating x") && calls.includes("terminating y"));
});

test("does not look for orphans while the target is unreachable", async (t) => {
  const target = fakeTargetGate();
  target.lose();
  const { advance, calls, world } = rig(t, {}, target);
  Object.assign(world, { inRuntime: ["x"], onDisk: ["y"] });
  await advance(10_000);
  assert.equal(calls.length, 0);
  target.find();
  await advance(2_000);
  assert.ok(calls.includes("terminating x") && calls.includes("terminating y"));
});

test("terminates, cleans up and forgets a pod that only the runtime knows", async (t) => {
  const { advance, calls, world, worker } = rig(t);
  world.wanted = [named("wanted")];
  world.inRuntime = ["stray", "wanted"];
  await advance(2_000);
  assert.deepEqual(
    calls.filter((call) => call.endsWith("stray")),
    ["terminating stray", "terminated stray"],
  );
  await advance(2_000);
  assert.deepEqual(
    [calls.filter((call) => call.startsWith("sweep")), worker.get("stray")],
    [["sweep stray"], undefined],
  );
  await advance(10_000);
  assert.equal(calls.filter((call) => call.endsWith(" stray")).length, 3);
});

test("terminates a pod of which only the directory is left", async (t) => {
  const { advance, calls, world } = rig(t);
  world.wanted = [named("wanted")];
  await advance(2_000);
  world.onDisk = ["left", "wanted"];
  await advance(64_000);
  assert.deepEqual(
    calls.filter((call) => call.endsWith("left")),
    ["terminating left", "terminated left", "sweep left"],
  );
  assert.ok(!calls.includes("terminating wanted"));
});

test("terminates a pod that disappeared from its source without an update", async (t) => {
  const { advance, calls, world, workers } = rig(t);
  workers.update(named("p"));
  world.wanted = [named("p")];
  await advance(4_000);
  assert.deepEqual(
    calls.filter((call) => !call.startsWith("keep")),
    ["sync p"],
  );
  world.wanted = [];
  await advance(2_000);
  assert.ok(calls.includes("terminating p"));
});

test("keeps a finished pod that its source still has", async (t) => {
  const { advance, calls, world, workers, worker } = rig(t);
  world.wanted = [named("p")];
  workers.update({ ...named("p"), status: { phase: "Succeeded" } });
  await advance(10_000);
  assert.equal(worker.get("p")?.phase, "finished");
  assert.ok(!calls.includes("sweep p"));
});

test("does not terminate an unknown pod of a source that this node does not have", async (t) => {
  const { advance, calls, world } = rig(t);
  Object.assign(world, { inRuntime: ["static"], annotations: { "kubernetes.io/config.source": "file" } });
  await advance(4_000);
  assert.ok(!calls.includes("terminating static"));
  world.sources.push("file");
  await advance(2_000);
  assert.ok(calls.includes("terminating static"));
});

for (const [restartPolicy, sweep] of [
  ["Always", "sweep p but containers"],
  ["Never", "sweep p"],
]) {
  test(`forgets a finished static pod that waits to start again, with restartPolicy ${restartPolicy}, even before the API server has reported`, async (t) => {
    const { advance, calls, world, workers, worker } = rig(t);
    world.seen = false;
    world.wanted = [aPod({ restartPolicy }, { uid: "p", name: "p" })];
    workers.update({ ...named("p"), status: { phase: "Succeeded" } });
    await advance(4_000);
    assert.equal(worker.get("p")?.phase, "finished");
    world.waiting = ["p"];
    await advance(2_000);
    assert.deepEqual(
      [calls.filter((call) => call.startsWith("sweep")), worker.get("p"), world.waiting],
      [[sweep], undefined, []],
    );
  });
}

test("retries a failed cleanup without delaying others", async (t) => {
  const { advance, calls, world, worker } = rig(t);
  world.inRuntime = ["a", "b"];
  world.sweepFails = true;
  await advance(4_000);
  assert.deepEqual(calls.filter((call) => call.startsWith("sweep")).sort(), ["sweep a", "sweep b"]);
  assert.equal(world.swept, "2 of 2");
  world.sweepFails = false;
  await advance(2_000);
  assert.deepEqual(worker.list(), []);
});

test("passes all known pods, including finished ones, to the components that drop records", async (t) => {
  const { advance, calls, world, workers } = rig(t);
  world.wanted = [named("a")];
  workers.update(named("a"));
  await advance(2_000);
  assert.ok(calls.includes("keep a"), calls.join());
});

test("pod workers: ignore a wake without a worker, run scheduled passes when due, and stop", async (t) => {
  const { advance, calls, world, workers, worker, signals } = rig(t);
  signals.wakeWorker.send("nobody", "pleg");
  assert.deepEqual(worker.list(), []);
  world.wanted = [named("a")];
  workers.update(named("a"));
  await advance(60_000);
  assert.equal(calls.filter((call) => call === "sync a").length, 2);
  workers.forget("a");
  await advance(200_000);
  assert.equal(calls.filter((call) => call === "sync a").length, 2);
});

test("runs pods independently of each other", async (t) => {
  const gate = Promise.withResolvers<void>();
  const begun: string[] = [];
  const { advance, world, workers } = rig(t, {
    async sync(pod) {
      begun.push(pod.metadata.uid);
      await gate.promise;
      return { terminal: false, requeueAfterMs: 60_000 };
    },
  });
  world.wanted = [named("a"), named("b")];
  workers.update(named("a"));
  workers.update(named("b"));
  await advance(0);
  assert.deepEqual(begun, ["a", "b"]);
  let idle = false;
  void workers.idle().then(() => {
    idle = true;
  });
  await advance(0);
  assert.equal(idle, false);
  gate.resolve();
  await advance(0);
  assert.equal(idle, true);
});

test("counts an orphan in the runtime once, but not a pod of which only the directory is left", async (t) => {
  const { advance, world } = rig(t);
  world.wanted = [named("wanted")];
  Object.assign(world, { inRuntime: ["stray", "wanted"], onDisk: ["left"] });
  await advance(64_000);
  assert.deepEqual([world.inRuntime, world.onDisk, world.orphans], [["wanted"], [], 1]);
});
