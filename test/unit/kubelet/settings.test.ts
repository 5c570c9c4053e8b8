import assert from "node:assert/strict";
import { test } from "node:test";
import { registeredAnnotations } from "../../../src/kubelet/settings.ts";
import type { TargetNetwork } from "../../../src/seams/provider.ts";

const isolated: TargetNetwork = { isolated: true };
const tunneled: TargetNetwork = { isolated: false, tunneled: true };

test("registers a Node without DaemonSets if pods have their own network, or if that is unknown", () => {
  const none = { "graftlet.dev/daemon-sets": "none" };
  const says = { ...none, "graftlet.dev/pod-network": "isolated" };
  assert.deepEqual([registeredAnnotations({ network: isolated }), registeredAnnotations(undefined)], [says, none]);
  assert.deepEqual(registeredAnnotations({ network: tunneled }), none);
  assert.deepEqual([registeredAnnotations({}), registeredAnnotations({ network: { isolated: false } })], [{}, {}]);
});
