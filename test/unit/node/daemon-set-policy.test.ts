import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { createDaemonSetPolicy } from "../../../src/node/daemon-set-policy.ts";
import type { Node, PodStatus } from "../../../src/objects.ts";
import type { DaemonSets } from "../../../src/pod/daemon-sets.ts";
import { aPod, aSandbox, observe } from "../../fakes/pods.ts";

const owner = { apiVersion: "apps/v1", kind: "DaemonSet", name: "d", uid: "d-1", controller: true };
const pod = aPod({}, { ownerReferences: [owner] });
const own = aPod({}, { uid: "own", name: "own" });

interface Given {
  readonly setting?: DaemonSets;
  readonly node?: Node;
  readonly isRunning?: boolean;
  readonly latest?: PodStatus;
}

function rig({ setting, node, isRunning = false, latest }: Given) {
  const lines: string[] = [];
  const observed = isRunning ? observe([aSandbox()], []) : undefined;
  const policy = createDaemonSetPolicy({
    setting,
    nodes: { node: () => node, ready: async () => {} },
    podCache: { get: () => observed, list: () => [] },
    status: { get: (uid) => (uid === pod.metadata.uid ? latest : undefined) },
    rootDir: "/var/lib/kubelet",
    log: createLogger(0, { write: (line) => void lines.push(line) }),
  });
  return { policy, lines, kind: policy.daemonSetDecision(pod, observed).kind };
}

const aNode = (choice?: string): Node => ({
  metadata: { name: "n", ...(choice && { annotations: { "graftlet.dev/daemon-sets": choice } }) },
});

test("a setting takes precedence over the Node's annotation", () => {
  assert.equal(rig({ setting: "all", node: aNode("none") }).kind, "pod");
  assert.equal(rig({ setting: "none", node: aNode("all") }).kind, "placeholder");
});

test("without a setting the Node's annotation decides; without one or with an unknown one, all DaemonSets run", () => {
  assert.equal(rig({ node: aNode("none") }).kind, "placeholder");
  assert.equal(rig({ node: aNode("selected") }).kind, "placeholder");
  assert.deepEqual(
    [aNode("all"), aNode(), aNode("some")].map((node) => rig({ node }).kind),
    ["pod", "pod", "pod"],
  );
});

test("no pod of a DaemonSet starts before the Node is known, but a running one stays", () => {
  assert.equal(rig({}).kind, "placeholder");
  assert.equal(rig({ isRunning: true }).kind, "pod");
});

test("the latest status takes precedence over the API server's", () => {
  assert.equal(rig({ setting: "none", latest: { phase: "Running" } }).kind, "pod");
});

test("identifies placeholders and filters them out", () => {
  const { policy } = rig({ setting: "none" });
  assert.deepEqual([policy.isPlaceholder(pod), policy.isPlaceholder(own)], [true, false]);
  assert.deepEqual(policy.withoutPlaceholders([pod, own]), [own]);
  assert.equal(rig({ setting: "none", isRunning: true }).policy.isPlaceholder(pod), false);
});

test("logs a warning if an older Node runs the pods of all DaemonSets without a setting to do so", async () => {
  const warned = async (given: Given) => {
    const { policy, lines } = rig(given);
    const stop = new AbortController();
    const running = Promise.all(policy.runnables.map((runnable) => runnable.run(stop.signal)));
    await new Promise(setImmediate);
    stop.abort();
    await running;
    return lines.length;
  };
  assert.equal(await warned({ node: aNode() }), 1);
  assert.equal(await warned({ node: aNode("none") }), 0);
  assert.equal(await warned({}), 0);
  assert.equal(await warned({ setting: "all", node: aNode() }), 0);
});
