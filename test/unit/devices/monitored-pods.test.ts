import assert from "node:assert/strict";
import { test } from "node:test";
import { monitoredPods } from "../../../src/devices/monitored-pods.ts";
import type { PodStatus } from "../../../src/objects.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";

const named = (uid: string, status: PodStatus = {}): TestPod => ({ ...aPod({}, { uid, name: uid }), status });

test("a pod is active until its latest local status is terminal, or, without one, its status in the API server", () => {
  const pods = [named("new"), named("old", { phase: "Failed" }), named("done", { phase: "Running" })];
  const latest = new Map<string, PodStatus>([["done", { phase: "Succeeded" }]]);
  const store = {
    list: () => pods,
    byName: (_namespace: string, name: string) => pods.find((p) => p.metadata.name === name),
  };
  const provider = monitoredPods(store, { status: latest, onlyActive: true });
  const uids = (found: readonly { readonly metadata: { readonly uid: string } }[]) =>
    found.map(({ metadata }) => metadata.uid);
  assert.deepEqual(uids(provider.all()), ["new", "old", "done"]);
  assert.deepEqual(uids(provider.listed()), ["new"]);
  assert.deepEqual(uids(monitoredPods(store, { status: latest, onlyActive: false }).listed()), ["new", "old", "done"]);
  assert.equal(provider.byName("ns", "old"), pods[1]);
});
