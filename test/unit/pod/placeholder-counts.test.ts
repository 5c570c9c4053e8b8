import assert from "node:assert/strict";
import { test } from "node:test";
import type { PodStatus } from "../../../src/objects.ts";
import { countPlaceholders } from "../../../src/pod/placeholder-counts.ts";
import { aPod } from "../../fakes/pods.ts";

const placeholder: PodStatus = { phase: "Running", reason: "NotRunByGraftlet" };
const owner = (name: string) => ({ apiVersion: "apps/v1", kind: "DaemonSet", name, uid: name, controller: true });
const pod = (uid: string, daemonSet: string, namespace = "kube-system") =>
  aPod({}, { uid, name: uid, namespace, ownerReferences: daemonSet === "" ? [] : [owner(daemonSet)] });

test("counts placeholders by namespace and DaemonSet in sorted order; those that have lost their DaemonSet have an empty name", () => {
  const pods = [pod("1", "proxy"), pod("2", "agent", "logging"), pod("3", "proxy"), pod("4", ""), pod("5", "runs")];
  const statuses = { get: (uid: string) => (uid === "5" ? ({ phase: "Running" } as const) : placeholder) };
  assert.deepEqual(countPlaceholders(pods, statuses), [
    { namespace: "kube-system", daemonSet: "", pods: 1 },
    { namespace: "kube-system", daemonSet: "proxy", pods: 2 },
    { namespace: "logging", daemonSet: "agent", pods: 1 },
  ]);
});

test("counts by the API object's status until the node has its own status", () => {
  const earlier = { ...pod("1", "proxy"), status: placeholder };
  assert.equal(countPlaceholders([earlier], { get: () => undefined }).length, 1);
  assert.equal(countPlaceholders([earlier], { get: () => ({ phase: "Running" }) }).length, 0);
});
