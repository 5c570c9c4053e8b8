import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CodedError, abortError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { type Tracer, noTracer } from "../../../src/lib/tracer.ts";

import { type Passes, type PassResult, createPodWorker, type WorkerMeasures } from "../../../src/sync/pod-worker.ts";
import { createPodWorkers } from "../../../src/sync/pod-workers.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";
import { type FakePresence, fakeTargetGate } from "../../fakes/target-gate.ts";
import { fakeTracer } from "../../fakes/tracer.ts";
import { type WorkerView, createPodTable } from "../../../src/state/pod-table.ts";
import { createSignals } from "../../../src/state/signals.ts";

/** A worker whose passes are recorded and end when the test says so. */
function rig(over: Partial<Passes> = {}, target?: FakePresence, tracer: Tracer = noTracer) {
  const calls: string[] = [];
  const later: number[] = [];
  const measured: string[] = [];
  const stop = new AbortController();
  const passes: Passes = {
    sync: async (pod) => {
      calls.push(`sync ${pod.metadata.resourceVersion ?? ""}`);
      return { terminal: false, requeueAfterMs: 60_000 };
    },
    terminating: async (_uid, _pod, { graceSeconds, eviction }) =>
      void calls.push(`terminating ${graceSeconds}${eviction ? ` ${eviction.reason}` : ""}`),
    terminated: async () => void calls.push("terminated"),
    objectChanged: () => void calls.push("settled"),
    ...over,
  };
  const measures: WorkerMeasures = {
    started: ({ metadata }) => void measured.push(`began ${metadata.uid}`),
    synced: (kind) => void measured.push(kind),
  };
  let view: WorkerView = { phase: "syncing", pod: undefined };
  const made = createPodWorker({
    uid: "uid-1",
    publish: (next) => (view = next),
    passes,
    measures,
    tracer,
    waitForTarget: target?.present,
    clock: fakeClock(),
    log: silentLog(),
    requeueAfter: (_uid, ms) => void later.push(ms),
    stop: stop.signal,
  });
  const worker = {
    ...made,
    get phase() {
      return view.phase;
    },
  };
  return { worker, calls, later, measured, measures, stop, passes };
}

/** Workers whose passes are recorded. */
function several(over: Partial<Passes> = {}) {
  const { passes, calls, measures, stop } = rig(over);
  const { worker } = createPodTable(fakeClock());
  const signals = createSignals();
  const log = silentLog();
  const common = { passes, measures, tracer: noTracer, clock: fakeClock(), log, stop: stop.signal };
  const workers = createPodWorkers({ ...common, waitForTarget: undefined, worker: worker.writer, signals });
  return { workers, worker: worker.reader, signals, calls };
}

const version = (resourceVersion: string): TestPod => aPod({}, { resourceVersion });
const deleted = (graceSeconds: number): TestPod =>
  aPod({}, { deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: graceSeconds });

const untilAborted = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(abortError(signal)), { once: true }));

describe("passes and phases of a pod worker", () => {
  it("uses only the latest of several versions that arrive during a pass", async () => {
    const gate = Promise.withResolvers<void>();
    const seen: string[] = [];
    const { worker } = rig({
      sync: async (pod): Promise<PassResult> => {
        seen.push(pod.metadata.resourceVersion ?? "");
        await gate.promise;
        return { terminal: false, requeueAfterMs: 1 };
      },
    });
    for (const each of ["1", "2", "3"]) worker.update(version(each));
    gate.resolve();
    await worker.idle();
    assert.deepEqual(seen, ["1", "3"]);
  });

  it("measures passes by kind, including failed ones", async () => {
    const { worker, measured } = rig({ terminated: () => Promise.reject(new Error("busy")) });
    worker.update(version("1"));
    await worker.idle();
    worker.wake("pleg");
    await worker.idle();
    worker.update(version("2"));
    await worker.idle();
    worker.update(deleted(30));
    await worker.idle();
    assert.deepEqual(measured, ["began uid-1", "create", "sync", "update", "update", "update"]);
    const evicted = rig();
    evicted.worker.update(version("1"));
    await evicted.worker.idle();
    evicted.worker.terminate(0);
    await evicted.worker.idle();
    assert.deepEqual(evicted.measured, ["began uid-1", "create", "kill", "terminated"]);
    const over = rig({ sync: async () => ({ terminal: true, requeueAfterMs: 1 }) });
    over.worker.update(version("1"));
    await over.worker.idle();
    assert.deepEqual(over.measured, ["began uid-1", "create", "create", "terminated"]);
  });

  it("runs through its phases once and in order; marks later object changes as terminated", async () => {
    const { worker, calls } = rig();
    worker.update(deleted(30));
    await worker.idle();
    assert.deepEqual([calls, worker.phase], [["terminating 30", "terminated"], "finished"]);
    worker.update(deleted(30));
    worker.wake("pleg");
    await worker.idle();
    assert.deepEqual(calls, ["terminating 30", "terminated", "settled"]);
  });

  it("terminates a pod whose pass reports a terminal phase", async () => {
    const { worker, calls } = rig({ sync: async () => ({ terminal: true, requeueAfterMs: 0 }) });
    worker.update(version("1"));
    await worker.idle();
    assert.deepEqual(calls, ["terminating undefined", "terminated"]);
  });

  it("aborts a pass on termination, and a termination when the grace period shrinks; the grace period never grows", async () => {
    const graces: (number | undefined)[] = [];
    const { worker } = rig({
      sync: (_pod, signal) => untilAborted(signal),
      terminating: async (_uid, _pod, { graceSeconds }, signal) => {
        graces.push(graceSeconds);
        if (graceSeconds !== 1) await untilAborted(signal);
      },
    });
    worker.update(version("1"));
    await Promise.resolve();
    worker.update(deleted(30));
    await new Promise(setImmediate);
    worker.update(deleted(60));
    await new Promise(setImmediate);
    assert.deepEqual(graces, [30]);
    worker.update(deleted(0));
    await worker.idle();
    assert.deepEqual([graces, worker.phase], [[30, 1], "finished"]);
  });

  it("terminates an evicted pod for the first reason given", async () => {
    const { workers, signals, calls } = several();
    const end = (graceSeconds: number, reason: string) =>
      signals.terminatePod.send("uid-1", { graceSeconds, eviction: { reason, message: "too much" } });
    end(1, "Evicted");
    assert.deepEqual(calls, [], "of which nothing is known");
    workers.update(version("1"));
    await workers.idle();
    end(2, "Evicted");
    end(2, "Preempting");
    await workers.idle();
    assert.deepEqual(calls, ["sync 1", "terminating 2 Evicted", "terminated"]);
  });

  it("terminates once, within the pod's own grace period, if a deletion has no shorter one", async () => {
    const graces: (number | undefined)[] = [];
    const gate = Promise.withResolvers<void>();
    const { worker } = rig({
      sync: async () => ({ terminal: true, requeueAfterMs: 0 }),
      terminating: async (_uid, _pod, { graceSeconds }, signal) => {
        graces.push(graceSeconds);
        await Promise.race([gate.promise, untilAborted(signal)]);
      },
    });
    const own = { terminationGracePeriodSeconds: 30 };
    worker.update(aPod(own));
    await new Promise(setImmediate);
    for (const seconds of [30, 60]) worker.update({ ...deleted(seconds), spec: { ...deleted(seconds).spec, ...own } });
    await new Promise(setImmediate);
    assert.deepEqual(graces, [undefined]);
    gate.resolve();
    await worker.idle();
    assert.deepEqual([graces, worker.phase], [[undefined], "finished"]);
  });

  it("terminates a preempted pod within its own grace period", async () => {
    const { workers, signals, calls } = several();
    workers.update(version("1"));
    signals.terminatePod.send("uid-1", {
      graceSeconds: undefined,
      eviction: { reason: "Preempting", message: "make room" },
    });
    await workers.idle();
    assert.ok(calls.includes("terminating undefined Preempting"));
  });

  it("signals once when it has finished, and nothing after it is forgotten", async () => {
    const { workers, worker, signals } = several();
    const phases: (string | undefined)[] = [];
    signals.mirrorsChanged.subscribe(() => void phases.push(worker.get("uid-1")?.phase));
    workers.update(version("1"));
    await workers.idle();
    assert.deepEqual(phases, []);
    workers.update(deleted(1));
    await workers.idle();
    workers.update(deleted(1));
    await workers.idle();
    assert.deepEqual(phases, ["finished"]);
    workers.forget("uid-1");
    assert.equal(worker.get("uid-1"), undefined);
  });

  it("does not re-create the record of a worker that is forgotten during a pass", async () => {
    const gate = Promise.withResolvers<void>();
    const { workers, worker } = several({ terminating: () => gate.promise });
    workers.update(deleted(1));
    const idle = workers.idle();
    workers.forget("uid-1");
    gate.resolve();
    await idle;
    assert.deepEqual(worker.list(), []);
  });

  it("retries after an error, in the same phase", async () => {
    let failures = 1;
    const { worker, later } = rig({
      terminating: async () => {
        if (failures-- > 0) throw new Error("runtime is away");
      },
    });
    worker.update(deleted(5));
    await worker.idle();
    assert.equal(worker.phase, "terminating");
    assert.ok((later[0] ?? 0) >= 10_000 && (later[0] ?? 0) <= 15_000);
    worker.wake("resync");
    await worker.idle();
    assert.equal(worker.phase, "finished");
  });

  it("traces each pass with the pod's attributes and its error", async () => {
    const tracer = fakeTracer();
    const outcome = { terminal: false, requeueAfterMs: 60_000, error: new Error("no image") };
    const { worker } = rig({ sync: () => Promise.resolve(outcome) }, undefined, tracer);
    const pod = aPod({}, { namespace: "ns", name: "p", uid: "uid-1" });
    worker.update(pod);
    await worker.idle();
    worker.terminate(1);
    await worker.idle();
    const own = { "k8s.pod.uid": "uid-1", "k8s.pod": "ns/p", "k8s.pod.name": "p", "k8s.namespace.name": "ns" };
    assert.deepEqual(tracer.spans, [
      {
        name: "syncPod",
        attributes: { ...own, "k8s.pod.update_type": "create" },
        parent: "none",
        added: {},
        failed: "Error: no image",
      },
      { name: "syncTerminatingPod", attributes: own, parent: "none", added: {} },
      { name: "syncTerminatedPod", attributes: own, parent: "none", added: {} },
    ]);
  });

  it("retries failed and running passes as soon as the runtime is back, with limited concurrency", async () => {
    const clock = fakeClock();
    const { measures, stop, passes } = rig();
    const gates: (() => void)[] = [];
    const passed: string[] = [];
    let down = true;
    const signals = createSignals();
    const workers = createPodWorkers({
      waitForTarget: undefined,
      worker: createPodTable(clock).worker.writer,
      signals,
      passes: {
        ...passes,
        sync: async ({ metadata: { uid } }) => {
          if (uid === "fine") return { terminal: false, requeueAfterMs: 60_000 };
          if (uid === "throws" && down) throw new CodedError("unavailable", "no runtime");
          if (!down) {
            passed.push(uid);
            await new Promise<void>((resolve) => gates.push(resolve));
          }
          return { terminal: false, requeueAfterMs: 60_000, ...(down && { error: new Error("down") }) };
        },
      },
      measures,
      tracer: noTracer,
      clock,
      log: silentLog(),
      stop: stop.signal,
    });
    const uids = ["throws", ...Array.from({ length: 30 }, (_, index) => `p${index}`)];
    for (const uid of ["fine", ...uids]) workers.update(aPod({}, { uid }));
    await workers.idle();
    down = false;
    signals.retryFailedPods.send();
    assert.equal(passed.length, 20, "the others wait for these");
    while (passed.length < uids.length || gates.length > 0) {
      for (const open of gates.splice(0)) open();
      await new Promise(setImmediate);
    }
    assert.deepEqual([...passed].sort(), [...uids].sort(), "each once, and none that is well");
    await workers.idle();
    passed.length = 0;
    signals.wakeWorker.send("p0", "pleg");
    signals.retryFailedPods.send();
    while (passed.length < 2) {
      for (const open of gates.splice(0)) open();
      await new Promise(setImmediate);
    }
    for (const open of gates.splice(0)) open();
    await workers.idle();
    assert.deepEqual(passed, ["p0", "p0"], "one that was under way has begun without the runtime");
  });

  it("waits while the target is unreachable, then uses the latest version", async () => {
    const target = fakeTargetGate();
    const { worker, calls } = rig({}, target);
    target.lose();
    for (const each of ["1", "2"]) worker.update(version(each));
    await new Promise(setImmediate);
    assert.deepEqual(calls, []);
    target.find();
    await worker.idle();
    assert.deepEqual([...new Set(calls)], ["sync 2"]);
  });

  it("repeats a pass aborted by the loss of the target as soon as the target is back", async () => {
    const target = fakeTargetGate();
    const seen: string[] = [];
    const { worker, later } = rig(
      {
        sync: async (pod, signal) => {
          seen.push(pod.metadata.resourceVersion ?? "");
          if (seen.length > 1) return { terminal: false, requeueAfterMs: 60_000 };
          target.lose();
          assert.ok(signal.aborted);
          throw new CodedError("unavailable", "gone");
        },
      },
      target,
    );
    worker.update(version("1"));
    await new Promise(setImmediate);
    assert.deepEqual([seen, later], [["1"], []]);
    target.find();
    await worker.idle();
    assert.deepEqual([seen, later], [["1", "1"], [60_000]]);
  });

  it("does not terminate a pod while the target is unreachable", async () => {
    const target = fakeTargetGate();
    const { worker, calls } = rig({}, target);
    target.lose();
    worker.update(deleted(30));
    await new Promise(setImmediate);
    assert.deepEqual([calls, worker.phase], [[], "terminating"]);
    target.find();
    await worker.idle();
    assert.deepEqual([calls, worker.phase], [["terminating 30", "terminated"], "finished"]);
  });

  it("does nothing once graftlet is stopping", async () => {
    const { worker, calls, stop } = rig();
    stop.abort();
    worker.update(version("1"));
    await worker.idle();
    assert.deepEqual(calls, []);
  });
});
