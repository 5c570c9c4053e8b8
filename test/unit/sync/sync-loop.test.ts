import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";

import { type TestPod } from "../../fakes/pods.ts";
import { allocatedPod } from "../../../src/roles.ts";

import { named, rig } from "./sync-loop-rig.ts";

test("admits new pods one at a time in order of creation, against those admitted before", async (t) => {
  const { calls, push } = rig(t);
  await push(
    "ADD",
    named("young", { creationTimestamp: "2026-01-01T00:00:02Z" }),
    named("old", { creationTimestamp: "2026-01-01T00:00:01Z" }),
  );
  assert.deepEqual(calls, ["admit old beside ", "update old", "admit young beside old", "update young"]);
});

test("continues with other pods if admission of one throws", async (t) => {
  const { calls, push } = rig(t, async ({ metadata }) => {
    if (metadata.uid === "a") throw new Error("never seen before");
    return undefined;
  });
  await push("ADD", named("a"), named("b"));
  assert.deepEqual(calls, ["admit a beside ", "admit b beside ", "update b"]);
});

test("admits no pods while the runtime is down, which does not count as a stall, and then all in order", async (t) => {
  const { calls, loop, clock, push, runtimeErrors, phases } = rig(t);
  phases.set("old", "syncing");
  runtimeErrors.push("container runtime is down");
  const pushed = push("ADD", named("old"), named("a"), named("b"));
  await clock.advance(60_000);
  assert.deepEqual(calls, ["update old"]);
  assert.equal(loop.isStalled(10_000), false);
  runtimeErrors.length = 0;
  await clock.advance(5_000);
  await pushed;
  assert.deepEqual(calls.slice(1), ["admit a beside old", "update a", "admit b beside old,a", "update b"]);
});

test("the sync loop is stalled if admitting one pod takes too long, but not while admitting many pods or while idle", async (t) => {
  const admissions: PromiseWithResolvers<undefined>[] = [];
  const { loop, clock, push, phases } = rig(t, () => {
    const admission = Promise.withResolvers<undefined>();
    admissions.push(admission);
    return admission.promise;
  });
  await clock.advance(10_000);
  assert.equal(loop.isStalled(1_000), false, "it has nothing to do");
  const pushed = push("ADD", named("a"), named("b"));
  await clock.advance(900);
  assert.equal(loop.isStalled(1_000), false);
  admissions[0]?.resolve(undefined);
  await clock.advance(900);
  assert.equal(loop.isStalled(1_000), false, "it has gone on to the next pod");
  await clock.advance(200);
  assert.equal(loop.isStalled(1_000), true);
  admissions[1]?.resolve(undefined);
  await pushed;
  assert.deepEqual([...phases.keys()], ["a", "b"]);
  assert.equal(loop.isStalled(1_000), false);
});

test("marks a source as synced once its first update has been handled", async (t) => {
  const seen: boolean[] = [];
  const { takenIn, push } = rig(
    t,
    async () => {
      seen.push(takenIn.all());
      return undefined;
    },
    {},
    ["api"],
  );
  await push("ADD", named("a"), named("b"));
  await push("ADD", named("c"));
  assert.deepEqual(seen, [false, false, true]);
  const { takenIn: both, push: ofOne } = rig(t);
  await ofOne("ADD", named("a"));
  assert.equal(both.all(), false, "the files have not been heard");
});

test("does not admit placeholders, nor count their resources", async (t) => {
  const { calls, push } = rig(t, async () => ({ reason: "No", message: "no" }));
  await push("ADD", named("inert", {}, { phase: "Running", reason: "NotRunByGraftlet" }), named("other"));
  assert.deepEqual(calls.slice(0, 2), ["update inert", "admit other beside "]);
});

test("does not count resources of a pod whose worker has finished", async (t) => {
  const { calls, phases, push } = rig(t);
  await push("ADD", named("first"), named("second"));
  phases.set("first", "terminated");
  phases.set("second", "terminating");
  calls.length = 0;
  await push("ADD", named("third"));
  assert.equal(calls[0], "admit third beside second");
});

test("does not count resources of a pod that ended before a restart, even if it has not been cleaned up", async (t) => {
  const { calls, phases, running, push } = rig(t);
  running.add("refused");
  await push("ADD", named("done", {}, { phase: "Succeeded" }), named("refused", {}, { phase: "Failed" }));
  phases.set("done", "terminating").set("refused", "terminating");
  calls.length = 0;
  await push("ADD", named("next"));
  assert.equal(calls[0], "admit next beside refused", "what still runs does count");
});

test("terminates a running pod that is rejected after a restart", async (t) => {
  const { calls, running, statuses, phasesThen, pods, push } = rig(t, async () => ({
    reason: "NodeAffinity",
    message: "no",
  }));
  running.add("p");
  await push("ADD", named("p"));
  assert.deepEqual(calls.slice(1), ["update p"]);
  assert.deepEqual([statuses[0]?.phase, phasesThen], ["Failed", ["syncing"]], "its worker has it before Failed is set");
  assert.equal(pods.get("p")?.status?.phase, undefined, "what the API server said stays as it is");
});

test("reports a rejected pod as Failed with the reason, without a worker, and allows its deletion", async (t) => {
  const { calls, events, statuses, push } = rig(t, async () => ({
    reason: "OutOfcpu",
    message: "Node didn't have enough resource: cpu",
  }));
  await push("ADD", named("p"));
  assert.deepEqual(calls.slice(1), ["release p", "terminated p"]);
  assert.deepEqual(statuses, [
    {
      phase: "Failed",
      reason: "OutOfcpu",
      message: "Pod was rejected: Node didn't have enough resource: cpu",
      qosClass: "BestEffort",
      startTime: "2026-01-01T00:00:00Z",
    },
  ]);
  assert.deepEqual(events.lines, ["Warning OutOfcpu Node didn't have enough resource: cpu"]);
  calls.length = 0;
  await push("UPDATE", named("p"));
  assert.deepEqual(calls, []);
  await push("DELETE", named("p", { deletionTimestamp: "2026-01-01T00:00:00Z" }));
  assert.deepEqual(calls, ["update p"]);
});

test("passes a terminating pod to its worker without admission", async (t) => {
  const { calls, push } = rig(t, async () => ({ reason: "No", message: "no" }));
  await push(
    "ADD",
    named("deleted", { deletionTimestamp: "2026-01-01T00:00:00Z" }),
    named("failed", {}, { phase: "Failed" }),
  );
  assert.deepEqual(calls, ["update deleted", "update failed"]);
});

test("terminates a removed pod within its grace period", async (t) => {
  const { calls, pods, push } = rig(t);
  await push("ADD", named("p"));
  calls.length = 0;
  await push("REMOVE", named("p", { deletionGracePeriodSeconds: 30 }));
  assert.deepEqual([calls, pods.get("p")], [["terminate p 30"], undefined]);
});

test("reconciles a status that was changed by others, and wakes the worker if the pod is terminating", async (t) => {
  const { calls, push } = rig(t);
  await push("ADD", named("p"));
  calls.length = 0;
  await push("RECONCILE", named("p", {}, { phase: "Running" }));
  assert.deepEqual(calls, ["reconcile p"]);
  await push("RECONCILE", named("p", {}, { phase: "Failed" }));
  assert.deepEqual(calls.slice(1), ["reconcile p", "update p"]);
});

test("does not start a mirror pod", async (t) => {
  const { calls, push } = rig(t);
  const mirror = named("m", { annotations: { "kubernetes.io/config.mirror": "x" } });
  await push("ADD", mirror);
  await push("UPDATE", mirror);
  assert.deepEqual(calls, []);
});

test("handles updates in order while admission is slow, and is idle only afterwards", async (t) => {
  const gate = Promise.withResolvers<void>();
  const { calls, loop, push } = rig(t, async () => {
    await gate.promise;
    return undefined;
  });
  const pushing = push("ADD", named("p"));
  loop.push({ op: "UPDATE", source: "api", pods: [named("p", { resourceVersion: "2" })] });
  await new Promise(setImmediate);
  assert.deepEqual([calls, loop.isIdle()], [["admit p beside "], false]);
  gate.resolve();
  await pushing;
  assert.deepEqual(calls, ["admit p beside ", "update p", "update p"]);
});

test("continues after an update that cannot be handled", async (t) => {
  let broken = true;
  const { calls, push } = rig(t, async () => {
    if (broken) throw new Error("broken");
    return undefined;
  });
  await push("ADD", named("a"));
  broken = false;
  await push("ADD", named("b"));
  assert.equal(calls.at(-1), "update b");
});

const fromFile = (uid: string, name = uid): TestPod =>
  named(uid, { name, annotations: { "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid } });
const mirrorOf = (name: string): TestPod =>
  named(`mirror of ${name}`, { name, annotations: { "kubernetes.io/config.mirror": "h" } });

test("reconciles the static pod's status on a mirror pod update, without a worker for the mirror pod", async (t) => {
  const { calls, pods, push, manager } = rig(t);
  await push("ADD", fromFile("p"));
  calls.length = 0;
  await push("ADD", mirrorOf("p"));
  await push("UPDATE", mirrorOf("p"));
  await push("REMOVE", mirrorOf("p"));
  assert.deepEqual(calls, ["reconcile p", "reconcile p", "reconcile p"]);
  await push("ADD", mirrorOf("nobody"));
  assert.deepEqual([calls.length, pods.list().length, manager.mirrorPods().length], [3, 1, 1]);
});

test("adopts the container statuses of a mirror pod after a restart before reporting a status", async (t) => {
  const { calls, push, phases } = rig(t);
  const status = {
    phase: "Running",
    containerStatuses: [{ name: "c", ready: true, image: "", imageID: "", restartCount: 0 }],
  };
  await push("ADD", fromFile("p"));
  calls.length = 0;
  await push("ADD", { ...mirrorOf("p"), status });
  assert.deepEqual(calls, ["wake p config", "reconcile p after 1000"]);
  await push("UPDATE", { ...mirrorOf("p"), status });
  phases.set("p", "terminated");
  await push("ADD", { ...mirrorOf("p"), status });
  assert.deepEqual(calls.slice(2), ["reconcile p", "reconcile p"]);
});

test("admits a new version of a static pod when the old one has ended", async (t) => {
  const { calls, phases, push, loop } = rig(t);
  await push("ADD", fromFile("old", "p"));
  await push("REMOVE", fromFile("old", "p"));
  phases.set("old", "terminating");
  calls.length = 0;
  await push("ADD", fromFile("old", "p"));
  loop.resumeWaiting();
  assert.deepEqual([calls, loop.isWaiting("old")], [[], true]);
  phases.delete("old");
  loop.resumeWaiting();
  for (let turn = 0; !loop.isIdle() || turn < 2; turn++) await new Promise(setImmediate);
  assert.deepEqual([calls, loop.isWaiting("old")], [["admit old beside ", "update old"], false]);
});

test("does not start a static pod that is removed just before it is resumed", async (t) => {
  const { calls, phases, pods, push, loop } = rig(t);
  await push("ADD", fromFile("p"));
  phases.set("p", "terminating");
  await push("ADD", fromFile("p"));
  phases.delete("p");
  calls.length = 0;
  loop.push({ op: "REMOVE", source: "file", pods: [fromFile("p")] });
  loop.resumeWaiting();
  for (let turn = 0; !loop.isIdle() || turn < 2; turn++) await new Promise(setImmediate);
  assert.deepEqual([calls, pods.get("p")], [["terminate p undefined"], undefined]);
});

test("never starts a static pod that is removed while it waits", async (t) => {
  const { calls, phases, push, loop } = rig(t);
  await push("ADD", fromFile("p"));
  phases.set("p", "terminating");
  await push("ADD", fromFile("p"));
  calls.length = 0;
  await push("REMOVE", fromFile("p"));
  assert.deepEqual([calls, loop.isWaiting("p")], [["terminate p undefined"], false]);
});

test("signals mirrorsChanged only for handled updates that concern mirror pods", async (t) => {
  const { loop, phases, push, told } = rig(t);
  await push("ADD");
  await push("ADD", named("p"));
  assert.deepEqual(told, [true, true], "a source may have spoken for the first time");
  await push("UPDATE", named("p"));
  await push("RECONCILE", named("p"));
  assert.equal(told.length, 2);
  await push("ADD", fromFile("s"));
  assert.deepEqual([told.at(-1), phases.get("s")], [true, "syncing"]);
  await push("REMOVE", mirrorOf("s"));
  assert.equal(told.length, 4);
  loop.push({ op: "REMOVE", source: "file", pods: [fromFile("s")] });
  await push("UPDATE", named("p"));
  assert.deepEqual(told.slice(4), [false, true], "again when all that came meanwhile is handled");
});

test("signals mirrorsChanged again once the queue is empty, if mirror pods were synced too early", async (t) => {
  const { loop, push, told, signals } = rig(t);
  await push("ADD", named("p"));
  told.length = 0;
  loop.push({ op: "UPDATE", source: "api", pods: [named("p")] });
  loop.requeueMirrorSync();
  await push("RECONCILE", named("p"));
  assert.deepEqual(told.splice(0), [false, true]);
  signals.retryPendingResizes.send("pod_resized");
  loop.requeueMirrorSync();
  await push("RECONCILE", named("p"));
  assert.deepEqual(told.splice(0), [false, true]);
  await push("RECONCILE", named("p"));
  assert.deepEqual(told, []);
});

test("decides on the resize of a running pod before its worker sees the new spec", async (t) => {
  const { calls, push, rigged } = resizing(t);
  await push("ADD", named("p"), named("q"));
  calls.length = 0;
  rigged.asks = true;
  await push("UPDATE", named("p"));
  assert.deepEqual(calls, ["ask p", "decide among p,q: pod_updated", "update p"]);
  calls.length = 0;
  // Others may be given something too; of what it asked for itself a worker is told once.
  rigged.news = ["q", "p"];
  await push("UPDATE", named("p"));
  assert.deepEqual(calls, ["ask p", "decide among p,q: pod_updated", "wake q config", "update p"]);
  calls.length = 0;
  rigged.asks = false;
  await push("UPDATE", named("p"));
  assert.deepEqual(calls, ["ask p", "update p"]);
});

test("admits a pod with its previous allocation against the effective resources of other pods; decides on its request afterwards", async (t) => {
  const { calls, push, rigged } = resizing(t);
  rigged.asks = true;
  await push("ADD", named("p"), named("q"));
  assert.deepEqual(calls, [
    "take p",
    "admit given-p beside ",
    "update p",
    "take q",
    "admit given-q beside held-p",
    "update q",
    "ask p",
    "ask q",
    "decide among p,q: pods_added",
  ]);
});

test("retries pending resizes when a pod is removed or terminating, and when resources become free", async (t) => {
  const { calls, push, loop, signals } = resizing(t);
  await push("ADD", named("p"), named("q"));
  const decided = () => calls.splice(0).flatMap((call) => /^decide .*: (.*)$/.exec(call)?.[1] ?? []);
  calls.length = 0;
  await push("RECONCILE", named("p", {}, { phase: "Running" }));
  assert.deepEqual(decided(), []);
  await push("RECONCILE", named("p", {}, { phase: "Succeeded" }));
  assert.deepEqual(decided(), ["pod_terminated"]);
  await push("REMOVE", named("p"));
  assert.deepEqual(decided(), ["pods_removed"]);
  signals.retryPendingResizes.send("periodic_retry");
  while (!loop.isIdle()) await new Promise(setImmediate);
  assert.deepEqual(decided(), ["periodic_retry"]);
});

/** A loop that writes down what is asked of resizes too. */
function resizing(t: TestContext) {
  const rigged = { asks: false, news: [] as readonly string[] };
  const said: { calls: string[] } = { calls: [] };
  const made = rig(t, undefined, {
    addPod: ({ metadata }) => void said.calls.push(`take ${metadata.uid}`),
    allocatedPod: (pod) => allocatedPod({ ...pod, metadata: { ...pod.metadata, uid: `given-${pod.metadata.uid}` } }),
    effectivePod: (pod) => allocatedPod({ ...pod, metadata: { ...pod.metadata, uid: `held-${pod.metadata.uid}` } }),
    recordRequest: ({ metadata }) => (said.calls.push(`ask ${metadata.uid}`), rigged.asks),
    async retryPending(active, trigger) {
      said.calls.push(
        `decide among ${active()
          .map(({ metadata }) => metadata.uid)
          .join()}: ${trigger}`,
      );
      return rigged.news;
    },
  });
  said.calls = made.calls;
  return { ...made, rigged };
}

test("counts added, rejected and removed pods", async (t) => {
  const { counts, push } = rig(t, async ({ metadata }) =>
    metadata.uid === "b" ? { reason: "OutOfpods", message: "too many" } : undefined,
  );
  await push("ADD", named("a"), named("b"));
  await push("UPDATE", named("a"));
  await push("REMOVE", named("b"));
  assert.deepEqual(counts, ["seen a,b", "rejected OutOfpods", "forget b"]);
});
