import assert from "node:assert/strict";
import { test } from "node:test";
import { PodSandboxState } from "../../../src/gen/cri.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import type { WorkerPhase } from "../../../src/state/pod-table.ts";
import { createStaticQueue } from "../../../src/sync/static-queue.ts";
import { type TestPod, aPod, aSandbox, observe } from "../../fakes/pods.ts";
import { columnOf } from "../../fakes/state.ts";

const annotations = { "kubernetes.io/config.source": "file" };
const named = (uid: string, name = "web-n"): TestPod => aPod({}, { uid, name, annotations });

function rig() {
  const phases = new Map<string, WorkerPhase>();
  const podOf = new Map<string, TestPod>();
  const inRuntime: RuntimePod[] = [];
  const ended: string[] = [];
  const queue = createStaticQueue({
    worker: columnOf(() => [...phases].map(([uid, phase]) => [uid, { phase, pod: podOf.get(uid) }] as const)),
    workers: {
      terminate: (uid: string) => {
        ended.push(uid);
        phases.set(uid, "terminating");
      },
    },
    podCache: { get: (uid) => inRuntime.find((one) => one.uid === uid), list: () => inRuntime },
  });
  const work = (pod: TestPod, phase: WorkerPhase) => {
    phases.set(pod.metadata.uid, phase);
    podOf.set(pod.metadata.uid, pod);
  };
  return { queue, phases, inRuntime, ended, work };
}

test("queues a new version until the old one has ended, without delaying other pods", () => {
  const { queue, work } = rig();
  work(named("old"), "terminating");
  assert.deepEqual(
    [queue.enqueueIfBlocked(named("new")), queue.enqueueIfBlocked(named("other", "db-n"))],
    [true, false],
  );
  assert.deepEqual([queue.has("new"), queue.takeReady()], [true, []]);
  work(named("old"), "terminated");
  assert.deepEqual(queue.takeReady(), []);
  work(named("old"), "finished");
  assert.deepEqual([queue.takeReady(), queue.has("new")], [[named("new")], false]);
});

test("does not wait for a pod of the API server with the same name", () => {
  const { queue, work } = rig();
  work(aPod({}, { uid: "apis", name: "web-n" }), "syncing");
  assert.equal(queue.enqueueIfBlocked(named("new")), false);
});

test("queues a pod that is wanted again under the same UID until its worker is forgotten", () => {
  const { queue, phases, work } = rig();
  work(named("same"), "finished");
  assert.equal(queue.enqueueIfBlocked(named("same")), true);
  assert.deepEqual(queue.takeReady(), []);
  phases.clear();
  assert.deepEqual(queue.takeReady(), [named("same")]);
});

test("does not queue an update of a running pod", () => {
  const { queue, work } = rig();
  work(named("same"), "syncing");
  assert.equal(queue.enqueueIfBlocked(named("same")), false);
});

test("terminates an older version that only the runtime knows, but never a pod of the API server", () => {
  const of = (source: string, uid: string, state: PodSandboxState = PodSandboxState.SANDBOX_READY) => ({
    ...observe([aSandbox({ state, annotations: { "kubernetes.io/config.source": source } })], []),
    uid,
    name: "web-n",
    namespace: "default",
  });
  const { queue, inRuntime, ended, phases } = rig();
  inRuntime.push(of("api", "apis"), of("file", "dead", PodSandboxState.SANDBOX_NOTREADY));
  assert.equal(queue.enqueueIfBlocked(named("new")), false);
  inRuntime.push(of("file", "old"));
  assert.equal(queue.enqueueIfBlocked(named("new")), true);
  assert.deepEqual(ended, ["old"]);
  assert.deepEqual(queue.takeReady(), []);
  assert.deepEqual(ended, ["old"], "once");
  phases.set("old", "finished");
  inRuntime.length = 0;
  assert.deepEqual(queue.takeReady(), [named("new")]);
});

test("updates and removes pods that wait in the queue", () => {
  const { queue, work } = rig();
  work(named("old"), "terminating");
  queue.enqueueIfBlocked(named("new"));
  const newer = { ...named("new"), status: { phase: "Pending" } };
  assert.deepEqual([queue.update(newer), queue.update(named("other"))], [true, false]);
  work(named("old"), "finished");
  assert.deepEqual(queue.takeReady(), [newer]);
  queue.enqueueIfBlocked(named("new"));
  assert.equal(queue.remove("new"), false);
});
