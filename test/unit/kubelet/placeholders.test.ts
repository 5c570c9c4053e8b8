import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeContext, Cluster } from "../../../src/kubelet/deps.ts";
import { createNodeState } from "../../../src/kubelet/node-state.ts";
import { createPlaceholders, registeredAnnotations } from "../../../src/kubelet/placeholders.ts";
import { handOut } from "../../../src/kubelet/wiring.ts";
import type { Node } from "../../../src/objects.ts";
import type { TargetNetwork } from "../../../src/seams/provider.ts";
import { createSignals } from "../../../src/state/signals.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aPod } from "../../fakes/pods.ts";

const owner = { apiVersion: "apps/v1", kind: "DaemonSet", name: "d", uid: "d-1", controller: true };
const pod = aPod({}, { ownerReferences: [owner] });
const isolated: TargetNetwork = { isolated: true };
const tunneled: TargetNetwork = { isolated: false, tunneled: true };

/** What a new pod of a DaemonSet is. */
function chosen(
  network: TargetNetwork | undefined,
  node: Node | undefined,
  daemonSets?: "none" | "selected" | "all",
): "pod" | "placeholder" {
  const hand = handOut(createNodeState(fakeClock(), ["api"]).state, createSignals());
  const config = { rootDir: "/var/lib/kubelet", ...(daemonSets && { daemonSets }) };
  const context = { config, target: network ? { network } : {}, hand };
  const cluster = { nodes: { node: () => node } };
  const { daemonSetDecision } = createPlaceholders(context as unknown as NodeContext, cluster as unknown as Cluster);
  return daemonSetDecision(pod, undefined).kind;
}
const aNode = (choice?: string): Node => ({
  metadata: { name: "n", ...(choice && { annotations: { "graftlet.dev/daemon-sets": choice } }) },
});

test("a node on the cluster network runs pods of all DaemonSets unless configured otherwise", () => {
  assert.equal(chosen(undefined, aNode("none")), "pod");
  assert.equal(chosen({ isolated: false }, aNode()), "pod");
  assert.equal(chosen(undefined, aNode(), "none"), "placeholder");
});

test("a node with its own network follows the Node's annotation, and runs all without one", () => {
  for (const network of [isolated, tunneled]) {
    assert.equal(chosen(network, aNode("none")), "placeholder");
    assert.equal(chosen(network, aNode("all")), "pod");
    assert.equal(chosen(network, aNode()), "pod");
    assert.equal(chosen(network, aNode("none"), "all"), "pod");
    assert.equal(chosen(network, aNode("all"), "none"), "placeholder");
    assert.equal(chosen(network, undefined), "placeholder", "nothing begins before the Node is known");
  }
});

test("registers a Node without DaemonSets if pods have their own network, or that is not known", () => {
  const none = { "graftlet.dev/daemon-sets": "none" };
  const says = { ...none, "graftlet.dev/pod-network": "isolated" };
  assert.deepEqual([registeredAnnotations({ network: isolated }), registeredAnnotations(undefined)], [says, none]);
  assert.deepEqual(registeredAnnotations({ network: tunneled }), none);
  assert.deepEqual([registeredAnnotations({}), registeredAnnotations({ network: { isolated: false } })], [{}, {}]);
});
