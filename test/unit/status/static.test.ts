import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod, PodStatus } from "../../../src/objects.ts";
import { aPod } from "../../fakes/pods.ts";
import { nowText, withStatus, world } from "./world.ts";

test("writes a static pod's status to its mirror pod, or keeps it while there is no mirror pod", async () => {
  const mirrorOf = (uid: string, status: PodStatus): Partial<Pod> =>
    withStatus(status, { uid, annotations: { "kubernetes.io/config.mirror": "h" } });
  const pod = aPod({}, { uid: "h", annotations: { "kubernetes.io/config.source": "file" } });
  const startTime = "2025-01-01T00:00:00Z";
  const w = world(mirrorOf("m1", { phase: "Pending", startTime }), { now: true }, "h");
  w.manager.set(pod, { phase: "Running" });
  await w.settle();
  assert.deepEqual([w.patches, w.server.pod?.metadata.uid], [[{ phase: "Running" }], "m1"], "the start time is kept");
  w.server.pod = undefined;
  w.manager.set(pod, { phase: "Running", message: "more" });
  await w.settle();
  const held = { phase: "Running", message: "more", startTime };
  assert.deepEqual(w.manager.get("h"), held);
  w.store.pod = w.server.pod = { ...aPod(), ...mirrorOf("m2", {}) };
  w.manager.reconcile(pod);
  await w.settle();
  assert.deepEqual([w.patches.at(-1), w.manager.get("h")], [held, held]);
  await w.end();
});

test("reverts a final phase that others wrote to a mirror pod", async () => {
  const metadata = { uid: "m", annotations: { "kubernetes.io/config.mirror": "h" } };
  const w = world(withStatus({ phase: "Running" }, metadata), { now: true }, "h");
  const pod = aPod({}, { uid: "h", annotations: { "kubernetes.io/config.source": "file" } });
  w.manager.set(pod, { phase: "Running" });
  await w.settle();
  w.store.pod = w.server.pod = withStatus(
    { phase: "Failed", message: "meddled", startTime: nowText },
    { ...metadata, resourceVersion: "15" },
  );
  w.manager.reconcile(pod);
  await w.settle();
  assert.deepEqual(w.patches.at(-1), { phase: "Running", message: null });
  await w.end();
});

test("a finished static pod deletes nothing, regardless of what happens to its mirror pod", async () => {
  const metadata = { uid: "m", deletionTimestamp: nowText, annotations: { "kubernetes.io/config.mirror": "h" } };
  const w = world(withStatus({ phase: "Succeeded" }, metadata), { now: false }, "h");
  w.manager.terminated(aPod({}, { uid: "h", annotations: { "kubernetes.io/config.source": "file" } }));
  await w.settle();
  assert.deepEqual(w.removed, []);
  await w.end();
});
