import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { PodStatus } from "../../../src/objects.ts";
import { createStatusManager } from "../../../src/status/manager.ts";
import { createPodApi, type PodApi } from "../../../src/status/pod-api.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { aPod } from "../../fakes/pods.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { nowText, quiet, withStatus, world } from "./world.ts";
import { aColumn } from "../../fakes/state.ts";

test("writes a changed status at once, but an unchanged status not at all", async () => {
  const w = world();
  const pod = aPod();
  w.manager.set(pod, { phase: "Running" });
  await w.settle();
  assert.deepEqual(w.patches, [{ phase: "Running", startTime: nowText }]);
  w.manager.set(pod, { phase: "Running" });
  w.manager.reconcile(pod);
  await w.settle();
  assert.equal(w.patches.length, 1);
  assert.deepEqual(w.changes, ["uid-1"]);
  assert.deepEqual(w.manager.get("uid-1"), { phase: "Running", startTime: nowText });
  await w.end();
});

test("writes nothing after a restart if the API server is up to date", async () => {
  const shown: PodStatus = {
    phase: "Running",
    startTime: "2025-01-01T00:00:00Z",
    conditions: [{ type: "Ready", status: "True", lastTransitionTime: "2025-01-01T00:00:09Z" }],
  };
  const w = world({ status: shown });
  w.manager.set(withStatus(shown), { phase: "Running", conditions: [{ type: "Ready", status: "True" }] });
  await w.settle();
  assert.deepEqual(w.patches, []);
  await w.end();
});

const onItsWay = (podIP?: string): PodStatus => ({
  phase: "Pending",
  ...(podIP && { podIP }),
  containerStatuses: [
    {
      name: "c",
      image: "",
      imageID: "",
      ready: false,
      restartCount: 0,
      state: { waiting: { reason: "ContainerCreating" } },
    },
  ],
});

test("the status of a pod that is only starting is merged with the next status, or written within a second", async () => {
  const w = world();
  w.manager.set(aPod(), onItsWay());
  w.manager.set(aPod(), onItsWay("10.0.0.1"));
  await w.clock.advance(900);
  assert.deepEqual(w.patches, []);
  w.manager.set(aPod(), { phase: "Running", podIP: "10.0.0.1" });
  await w.settle();
  assert.deepEqual(w.patches, [{ phase: "Running", podIP: "10.0.0.1", startTime: nowText }]);
  await w.clock.advance(5_000);
  assert.equal(w.patches.length, 1);
  await w.end();

  const slow = world();
  slow.manager.set(aPod(), onItsWay("10.0.0.1"));
  await slow.clock.advance(1_000);
  assert.equal(slow.patches.length, 1);
  await slow.end();
});

test("a change of the observed generation alone is merged with the next status; an error is written at once", async () => {
  const w = world();
  const running = (observedGeneration: number): PodStatus => ({
    phase: "Running",
    conditions: [{ type: "Ready", status: "True", observedGeneration }],
  });
  w.manager.set(aPod(), running(1));
  await w.settle();
  const newer = aPod({}, { generation: 2 });
  w.manager.set(newer, running(2));
  await w.settle();
  assert.equal(w.patches.length, 1);
  await w.clock.advance(5_000);
  const conditions = [{ type: "Ready", status: "True", observedGeneration: 2, lastTransitionTime: nowText }];
  assert.deepEqual(w.patches.slice(1), [{ observedGeneration: 2, conditions }]);
  const [container] = onItsWay().containerStatuses ?? [];
  const failing = {
    ...onItsWay(),
    containerStatuses: [{ ...container, state: { waiting: { reason: "ErrImagePull" } } }],
  };
  w.manager.set(newer, failing as PodStatus);
  await w.settle();
  assert.equal(w.patches.length, 3);
  await w.end();
});

test("a pod without running containers shows its final phase before its worker has finished", async () => {
  const w = world({}, { now: true });
  w.manager.set(aPod(), { phase: "Succeeded" }, true);
  await w.settle();
  assert.deepEqual(w.patches, [{ phase: "Succeeded", startTime: nowText }]);
  assert.deepEqual(w.removed, []);
  await w.end();
});

test("writes statuses set before the start", async () => {
  const w = world();
  await w.end();
  w.manager.set(aPod(), { phase: "Running" });
  await w.settle();
  assert.deepEqual(w.patches, []);
  const stop = new AbortController();
  const again = w.manager.run(stop.signal);
  await w.settle();
  assert.equal(w.patches.length, 1);
  stop.abort();
  await again;
});

test("reverts changes that others made to the status", async () => {
  const w = world();
  w.manager.set(aPod(), { phase: "Running" });
  await w.settle();
  w.store.pod = withStatus({ phase: "Pending", startTime: nowText }, { resourceVersion: "15" });
  w.manager.reconcile(w.store.pod);
  await w.settle();
  assert.deepEqual(w.patches.at(-1), { phase: "Running" });
  await w.end();
});

test("a lagging watch does not cause a patch to be sent again", async () => {
  const w = world();
  w.manager.set(aPod(), { phase: "Running" });
  await w.settle();
  w.store.pod = withStatus({ phase: "Pending" }, { resourceVersion: "9" });
  w.manager.reconcile(w.store.pod);
  await w.settle();
  assert.equal(w.patches.length, 1);
  await w.end();
});

test("retries the newest status with back-off while the API server is unreachable", async () => {
  const w = world();
  w.fail.push(...Array.from({ length: 3 }, () => new CodedError("unavailable", "refused")));
  w.manager.set(aPod(), { phase: "Pending" });
  await w.settle();
  w.manager.set(aPod(), { phase: "Running" });
  await w.clock.advance(199);
  assert.equal(w.fail.length, 1);
  await w.clock.advance(1);
  assert.equal(w.fail.length, 0);
  await w.clock.advance(1_000);
  assert.deepEqual(w.patches, [{ phase: "Running", startTime: nowText }]);
  await w.end();
});

test("holds back a final phase until no container may run, then deletes the finished pod", async () => {
  const w = world({}, { now: true });
  const pod = withStatus({ phase: "Running", startTime: nowText }, { deletionTimestamp: nowText });
  w.server.pod = pod;
  w.store.pod = pod;
  w.manager.set(pod, { phase: "Succeeded" });
  await w.settle();
  assert.deepEqual([w.patches, w.removed], [[], []]);
  w.mayRun.now = false;
  w.manager.reconcile(pod);
  await w.settle();
  assert.deepEqual([w.patches, w.removed], [[{ phase: "Succeeded" }], []]);
  w.manager.terminated(pod);
  await w.settle();
  assert.deepEqual(w.removed, ["uid-1"]);
  assert.equal(w.patches.length, 1);
  assert.equal(w.manager.get("uid-1"), undefined);
  await w.end();
});

test("keeps a finished pod until it is marked for deletion", async () => {
  const w = world();
  w.manager.set(aPod(), { phase: "Failed" });
  w.manager.terminated(aPod());
  await w.settle();
  assert.deepEqual(w.removed, []);
  w.store.pod = withStatus(w.server.pod?.status ?? {}, { deletionTimestamp: nowText, resourceVersion: "20" });
  w.manager.reconcile(w.store.pod);
  await w.settle();
  assert.deepEqual(w.removed, ["uid-1"]);
  await w.end();
});

test("does not delete a mirror pod", async () => {
  const w = world();
  const mirror = withStatus(
    { phase: "Failed" },
    { deletionTimestamp: nowText, annotations: { "kubernetes.io/config.mirror": "h" } },
  );
  w.server.pod = mirror;
  w.store.pod = mirror;
  w.manager.terminated(mirror);
  await w.settle();
  assert.deepEqual(w.removed, []);
  await w.end();
});

test("does not write the status of a pod that was re-created under the same name or is gone", async () => {
  const replaced = world();
  replaced.server.pod = aPod({}, { uid: "uid-2" });
  replaced.manager.set(aPod(), { phase: "Running" });
  await replaced.clock.advance(60_000);
  assert.deepEqual([replaced.patches, replaced.manager.get("uid-1")], [[], undefined]);
  await replaced.end();
  const gone = world();
  gone.server.pod = undefined;
  gone.manager.set(aPod(), { phase: "Running" });
  await gone.clock.advance(60_000);
  assert.equal(gone.manager.get("uid-1"), undefined);
  await gone.end();
});

test("refreshes the pod after a conflict and retries", async () => {
  const w = world();
  w.fail.push(new CodedError("conflict", "modified"));
  w.manager.set(aPod(), { phase: "Running" });
  await w.clock.advance(200);
  assert.equal(w.patches.length, 1);
  await w.end();
});

test("does not resend a patch that the API server ignores", async () => {
  const w = world();
  const store = w.store.pod;
  assert.ok(store);
  const sent: object[] = [];
  const api: PodApi = {
    get: async () => store,
    remove: async () => undefined,
    patchStatus: async (_pod, status) => (sent.push(status), store),
  };
  const manager = createStatusManager({
    status: aColumn(),
    privateColumn: aColumn,
    onEnd: () => undefined,
    log: quiet,
    measures: unmeasured.statuses,
    api,
    apiPods: { get: () => store, onChange: () => () => {} },
    worker: { get: () => ({ phase: "finished", pod: undefined }) },
    clock: w.clock,
  });
  const stop = new AbortController();
  const done = manager.run(stop.signal);
  for (let round = 0; round < 3; round++) {
    manager.set(store, { phase: "Running" });
    await w.settle();
  }
  assert.equal(sent.length, 1);
  manager.set(store, { phase: "Running", podIP: "10.0.0.1", podIPs: [{ ip: "10.0.0.1" }] });
  await w.settle();
  assert.equal(sent.length, 2);
  stop.abort();
  await done;
  await w.end();
});

test("drops a status that would revive a terminated container", async () => {
  const w = world();
  const pod = aPod({ restartPolicy: "Never" });
  const status = (state: object): PodStatus => ({
    phase: "Running",
    containerStatuses: [{ name: "c", image: "i", imageID: "", ready: false, restartCount: 0, state }],
  });
  w.manager.set(pod, status({ terminated: { exitCode: 1 } }));
  w.manager.set(pod, status({ running: {} }));
  assert.ok(w.manager.get("uid-1")?.containerStatuses?.[0]?.state?.terminated);
  await w.end();
});

test("writes many pods concurrently, up to a limit", async () => {
  const clock: FakeClock = fakeClock();
  const pods = new Map(
    Array.from({ length: 25 }, (_, index) => [`uid-${index}`, aPod({}, { uid: `uid-${index}`, name: `p${index}` })]),
  );
  const gates: PromiseWithResolvers<void>[] = [];
  const patchStatus: PodApi["patchStatus"] = async ({ uid }) => {
    const gate = Promise.withResolvers<void>();
    gates.push(gate);
    await gate.promise;
    const pod = pods.get(uid);
    assert.ok(pod);
    return pod;
  };
  const api: PodApi = { get: () => Promise.reject(new Error("not asked")), remove: async () => undefined, patchStatus };
  const manager = createStatusManager({
    status: aColumn(),
    privateColumn: aColumn,
    onEnd: () => undefined,
    log: quiet,
    measures: unmeasured.statuses,
    api,
    apiPods: { get: (uid) => pods.get(uid), onChange: () => () => {} },
    worker: { get: () => ({ phase: "syncing", pod: undefined }) },
    clock,
  });
  const stop = new AbortController();
  const done = manager.run(stop.signal);
  for (const pod of pods.values()) manager.set(pod, { phase: "Running" });
  await clock.advance(0);
  assert.equal(gates.length, 10);
  for (let index = 0; index < 25; index++) {
    gates[index]?.resolve();
    await clock.advance(0);
  }
  assert.equal(gates.length, 25);
  stop.abort();
  await done;
});

test("calls use the status subresource with the UID as precondition and strip managedFields", async () => {
  const calls: unknown[] = [];
  const pod = aPod({}, { managedFields: [{ manager: "kubelet" }] });
  const client = {
    create: () => assert.fail("no pod is created"),
    get: async <T>(path: string) => (calls.push(["get", path]), pod as T),
    patch: async <T>(path: string, patch: unknown) => (calls.push(["patch", path, patch]), pod as T),
    delete: async (path: string, body: object | undefined) => void calls.push(["delete", path, body]),
  };
  const api = createPodApi(client);
  const { signal } = new AbortController();
  for (const answer of [api.get("default", "p", signal), api.patchStatus(pod.metadata, { phase: "Running" }, signal)])
    assert.deepEqual((await answer).metadata, aPod().metadata);
  await api.remove(pod.metadata, signal);
  assert.deepEqual(calls, [
    ["get", "/api/v1/namespaces/default/pods/p"],
    [
      "patch",
      "/api/v1/namespaces/default/pods/p/status",
      { type: "strategic", body: { metadata: { uid: "uid-1" }, status: { phase: "Running" } } },
    ],
    ["delete", "/api/v1/namespaces/default/pods/p", { gracePeriodSeconds: 0, preconditions: { uid: "uid-1" } }],
  ]);
});
