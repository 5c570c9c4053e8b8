import assert from "node:assert/strict";
import { test } from "node:test";
import type { Node, Pod } from "../../../src/objects.ts";
import { nodeView, podView, usageView } from "../../../src/page/node-view.ts";
import { fakeNodeWork } from "../../fakes/page.ts";
import { never } from "../../fakes/signals.ts";

const node = fakeNodeWork({ name: "edge", pods: 3 }, () => 0).node();
const of = { name: "edge", provider: "ssh", node, running: true, link: "up" } as const;
const broken = { reason: "LinkDown", message: "no route to host" } as const;

test("shows a node's state, link, conditions and machine", () => {
  const { conditions, ...shown } = nodeView(of);
  assert.deepEqual(shown, {
    name: "edge",
    provider: "ssh",
    state: "Ready",
    why: "",
    link: "up",
    images: 1,
    imageBytes: 150_000_000,
    version: "v1.36.3",
    os: "Debian GNU/Linux 12 (bookworm)",
    address: "192.0.2.7",
    cpus: 8,
    memory: 16 * 2 ** 30,
    maxPods: 110,
  });
  assert.deepEqual(
    conditions.filter(({ bad }) => bad),
    [],
  );
});

test("shows a node with a broken link as not ready with the reason, and one that never ran as starting", () => {
  const { state, why, link } = nodeView({ ...of, link: broken });
  assert.deepEqual([state, why, link], ["NotReady", "no route to host", "LinkDown"]);
  assert.equal(nodeView({ ...of, node: undefined, running: false }).state, "Starting");
});

test("marks conditions as bad by type, except a configured isolated network", () => {
  const bad = (type: string, status: string, reason = "R") => {
    const conditions = [{ type, status, reason }] as NonNullable<Node["status"]>["conditions"];
    return nodeView({ ...of, node: { metadata: { name: "edge" }, status: { conditions: conditions ?? [] } } })
      .conditions[0]?.bad;
  };
  assert.deepEqual([bad("DiskPressure", "True"), bad("DiskPressure", "False")], [true, false]);
  assert.deepEqual(
    [bad("KubeletReachable", "False"), bad("TargetPrivileges", "False"), bad("Ready", "Unknown")],
    [true, true, true],
  );
  assert.deepEqual(
    [bad("PodNetworkIsolated", "True", "TargetNetworkOnly"), bad("PodNetworkIsolated", "True")],
    [false, true],
  );
});

const pod = (status: object, metadata: object = {}): Pod => ({
  metadata: { uid: "u", namespace: "shop", name: "web", ...metadata },
  spec: { containers: [{ name: "a" }, { name: "b" }] },
  status,
});
const container = (state: object, more: object = {}) => ({ name: "a", ready: false, restartCount: 0, state, ...more });

test("shows a pod's status as kubectl does", () => {
  const shown = (status: object, metadata?: object) => podView(pod(status, metadata)).status;
  const running = container({ running: {} });
  assert.equal(shown({ phase: "Running", containerStatuses: [running] }), "Running");
  assert.equal(
    shown({ phase: "Running", containerStatuses: [container({ waiting: { reason: "CrashLoopBackOff" } }), running] }),
    "CrashLoopBackOff",
  );
  assert.equal(
    shown({ phase: "Succeeded", containerStatuses: [container({ terminated: { reason: "Completed", exitCode: 0 } })] }),
    "Completed",
  );
  assert.equal(shown({ phase: "Failed", reason: "Evicted" }), "Evicted");
  assert.equal(shown({ phase: "Running" }, { deletionTimestamp: "2026-01-01T00:00:00Z" }), "Terminating");
  assert.equal(shown({}), "Pending");
});

test("marks a pod that needs attention, and counts ready containers and restarts", () => {
  const containerStatuses = [container({ running: {} }, { ready: true, restartCount: 2 })];
  const initContainerStatuses = [container({ terminated: { exitCode: 0 } }, { restartCount: 1 })];
  const shown = podView(
    pod({ phase: "Running", startTime: "1970-01-01T00:00:05Z", containerStatuses, initContainerStatuses }),
  );
  assert.deepEqual([shown.bad, shown.ready, shown.of, shown.restarts, shown.since], [false, 1, 2, 3, 5000]);
  assert.equal(podView(pod({ phase: "Failed", reason: "Evicted" })).bad, true);
});

test("shows usage of the node, its pods and containers from /stats/summary", async () => {
  const view = fakeNodeWork({ name: "edge", pods: 1 }, () => 60_000);
  const usage = usageView(await view.summary(never), 1);
  assert.equal(usage.at, 60_000);
  assert.deepEqual(usage.disk, { used: 40e9, capacity: 100e9 });
  assert.deepEqual([usage.node.rx, usage.node.disk], [6_000_000, 40e9]);
  assert.deepEqual(Object.keys(usage.pods["edge-0"]?.containers ?? {}), ["app", "proxy"]);
  assert.equal(usage.pods["edge-0"]?.containers["app"]?.disk, 7e6);
});

test("omits values missing from a summary, and uses the time of arrival if the summary has no time", () => {
  const containers = [{ name: "a" }];
  const usage = usageView({ node: {}, pods: [{ podRef: { uid: "u" }, containers }] }, 7);
  assert.deepEqual(usage, { at: 7, node: {}, pods: { u: { containers: { a: {} } } } });
});
