import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Node } from "../../../src/objects.ts";
import type { PodOperation } from "../../../src/pipeline.ts";
import { createMirrorPods } from "../../../src/sync/mirror-pods.ts";
import { createPodManager } from "../../../src/sync/pod-manager.ts";
import type { WorkerPhase } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { createSignals } from "../../../src/state/signals.ts";
import { columnOf } from "../../fakes/state.ts";

const staticPod = (uid: string): TestPod =>
  aPod(
    {},
    { uid, name: "web-n", annotations: { "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid } },
  );
const mirrorOf = (hash: string, uid: string, more: Partial<TestPod["metadata"]> = {}): TestPod =>
  aPod({}, { uid, name: "web-n", annotations: { "kubernetes.io/config.mirror": hash }, ...more });

/** The service over an API server that does as told, and workers that are where the test says. */
function rig(t: TestContext) {
  const clock = fakeClock();
  const table = createPodTable(clock);
  const manager = createPodManager({ desired: table.desired.writer, apiPods: table.apiPods.writer });
  const signals = createSignals();
  const phases = new Map<TestPod, WorkerPhase>();
  const calls: string[] = [];
  const bodies: object[] = [];
  const world = {
    seen: true,
    node: { metadata: { name: "n", uid: "node-uid" } } as Node | undefined,
    fails: "",
    requeued: 0,
  };
  const answer = async (call: string) => {
    calls.push(call);
    if (world.fails === "taken") throw new CodedError("already_exists", "pods web-n already exists");
    if (world.fails === "gone") throw new CodedError("conflict", "the UID in the precondition differs");
    if (world.fails) throw new CodedError("unavailable", world.fails);
  };
  const service = createMirrorPods({
    api: {
      create: (pod) => (bodies.push(pod), answer("create")),
      remove: ({ uid }) => answer(`remove ${uid}`),
    },
    desired: table.desired.reader,
    manager,
    worker: columnOf(() => [...phases].map(([pod, phase]) => [pod.metadata.uid, { phase, pod }] as const)),
    signals,
    node: { node: () => world.node },
    allSourcesReady: () => world.seen,
    requeue: () => (world.requeued += 1),
    clock,
    log: silentLog(),
  });
  const stop = new AbortController();
  const done = service.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
  });
  const take = (op: PodOperation, pod: TestPod) => manager.applyUpdate({ op, source: "file", pods: [pod] });
  /** What is asked within a second. */
  const asked = async (ms = 1_000) => {
    signals.mirrorsChanged.send();
    await clock.advance(ms);
    return calls.splice(0);
  };
  return { asked, bodies, clock, phases, take, world };
}

test("creates a mirror pod, owned by the node, for a started static pod", async (t) => {
  const { asked, bodies, clock, phases, take } = rig(t);
  const pod = staticPod("h1");
  take("ADD", pod);
  assert.deepEqual(await asked(), [], "not before it has begun");
  phases.set(pod, "syncing");
  assert.deepEqual(await asked(500), ["create"]);
  assert.deepEqual(bodies, [
    {
      apiVersion: "v1",
      kind: "Pod",
      metadata: {
        name: "web-n",
        namespace: "default",
        annotations: {
          "kubernetes.io/config.source": "file",
          "kubernetes.io/config.hash": "h1",
          "kubernetes.io/config.mirror": "h1",
        },
        ownerReferences: [{ apiVersion: "v1", kind: "Node", name: "n", uid: "node-uid", controller: true }],
      },
      spec: pod.spec,
    },
  ]);
  take("ADD", mirrorOf("h1", "m1"));
  assert.deepEqual(await asked(15_000), []);
  assert.equal(clock.pending, 0, "nothing is looked at while there is no news");
});

test("creates no mirror pod before the Node is registered, or while it is being deleted", async (t) => {
  const { asked, clock, phases, take, world } = rig(t);
  const pod = staticPod("h1");
  take("ADD", pod);
  phases.set(pod, "syncing");
  world.node = undefined;
  assert.deepEqual(await asked(), []);
  assert.equal(clock.pending, 0, "news of the node is waited for");
  world.node = { metadata: { name: "n", uid: "u", deletionTimestamp: "2026-01-01T00:00:00Z" } };
  assert.deepEqual(await asked(), [], "a Node that is being deleted owns none");
  world.node = { metadata: { name: "n", uid: "u" } };
  assert.equal((await asked(2_000))[0], "create");
});

test("re-creates a mirror pod that was deleted", async (t) => {
  const { asked, phases, take } = rig(t);
  const pod = staticPod("h1");
  take("ADD", pod);
  phases.set(pod, "syncing");
  take("ADD", mirrorOf("h1", "m1"));
  assert.deepEqual(await asked(), []);
  take("UPDATE", mirrorOf("h1", "m1", { deletionTimestamp: "2026-01-01T00:00:00Z" }));
  assert.deepEqual(await asked(500), ["remove m1"]);
  take("REMOVE", mirrorOf("h1", "m1"));
  assert.equal((await asked(2_000))[0], "create");
});

test("replaces an outdated mirror pod when the new version starts, not while the old one is terminating", async (t) => {
  const { asked, phases, take } = rig(t);
  const [old, next] = [staticPod("h1"), staticPod("h2")];
  take("ADD", mirrorOf("h1", "m1"));
  phases.set(old, "terminating");
  take("ADD", next);
  assert.deepEqual(await asked(5_000), []);
  phases.delete(old);
  phases.set(next, "syncing");
  assert.deepEqual(await asked(500), ["remove m1"]);
});

test("deletes an orphaned mirror pod once its pod has ended and every source has reported", async (t) => {
  const { asked, phases, take, world } = rig(t);
  const pod = staticPod("h1");
  take("ADD", mirrorOf("h1", "m1"));
  world.seen = false;
  assert.deepEqual(await asked(), []);
  assert.equal(world.requeued, 1, "asks to be called again");
  world.seen = true;
  phases.set(pod, "terminating");
  assert.deepEqual(await asked(), []);
  phases.set(pod, "finished");
  assert.deepEqual(await asked(500), ["remove m1"]);
});

test('retries failures with back-off; ignores "already exists" and "not found"', async (t) => {
  const { asked, phases, take, world } = rig(t);
  const pod = staticPod("h1");
  take("ADD", pod);
  phases.set(pod, "syncing");
  world.fails = "API server is away";
  assert.equal((await asked(15_500)).length, 5, "at 0, 1, 3, 7 and 15 seconds");
  world.fails = "taken";
  await asked(30_000);
  assert.ok((await asked(120_000)).length <= 5, "another pod has the name");
  take("ADD", mirrorOf("other", "m1"));
  world.fails = "gone";
  assert.deepEqual((await asked(31_000))[0], "remove m1");
});

test("retries deleting a mirror pod that a finalizer holds, with growing back-off", async (t) => {
  const { asked, take } = rig(t);
  take("ADD", mirrorOf("h1", "m1", { deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: ["test/hold"] }));
  assert.equal((await asked(30_500)).length, 5, "at 0, 1, 3, 7 and 15 seconds");
  take("REMOVE", mirrorOf("h1", "m1"));
  take("ADD", mirrorOf("h1", "m2"));
  assert.deepEqual(await asked(2_000), ["remove m2", "remove m2"], "another one is another matter");
});
