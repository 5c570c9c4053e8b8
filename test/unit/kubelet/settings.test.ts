import assert from "node:assert/strict";
import { test } from "node:test";
import { makesIptablesChains, nodeSettings, registeredAnnotations } from "../../../src/kubelet/settings.ts";
import type { TargetNetwork } from "../../../src/seams/provider.ts";
import { run } from "../config/files.ts";

const isolated: TargetNetwork = { isolated: true };
const tunneled: TargetNetwork = { isolated: false, tunneled: true };

test("registers a Node that excludes DaemonSets if the pod network is isolated, tunneled or unknown", () => {
  const none = { "graftlet.dev/daemon-sets": "none" };
  const says = { ...none, "graftlet.dev/pod-network": "isolated" };
  assert.deepEqual([registeredAnnotations({ network: isolated }), registeredAnnotations(undefined)], [says, none]);
  assert.deepEqual(registeredAnnotations({ network: tunneled }), none);
  assert.deepEqual([registeredAnnotations({}), registeredAnnotations({ network: { isolated: false } })], [{}, {}]);
});

test("creates iptables chains on its own machine unless disabled, and on a remote machine only if enabled", () => {
  const config = run([]).nodes[0];
  assert.ok(config);
  const link = { trouble: () => undefined, losses: () => 0, onChange: () => () => undefined };
  const made = (makeIPTablesUtilChains: boolean | undefined) => {
    const node = { ...config, kubelet: { ...config.kubelet, makeIPTablesUtilChains } };
    return [makesIptablesChains(node, {}), makesIptablesChains(node, { link })];
  };
  assert.deepEqual([undefined, true, false].map(made), [
    [true, false],
    [true, true],
    [false, false],
  ]);
});

test("refuses swap on its own machine unless failSwapOn is false, and on a remote machine only if it is true", () => {
  const config = run([]).nodes[0];
  assert.ok(config);
  const link = { trouble: () => undefined, losses: () => 0, onChange: () => () => undefined };
  const refuses = (failSwapOn: boolean | undefined) => {
    const node = { ...config, kubelet: { ...config.kubelet, failSwapOn } };
    return [{}, { link }].map((target) => nodeSettings(node, target).failSwapOn);
  };
  assert.deepEqual([undefined, true, false].map(refuses), [
    [true, false],
    [true, true],
    [false, false],
  ]);
});

test("--cloud-provider=external taints a new Node, and suggests the addresses of --node-ip", () => {
  const settings = (...flags: string[]) => {
    const node = run(flags).nodes[0];
    assert.ok(node);
    const { taints, annotations, cloudProvider } = nodeSettings(node, {});
    return [taints, annotations, cloudProvider];
  };
  const taint = { key: "node.cloudprovider.kubernetes.io/uninitialized", value: "true", effect: "NoSchedule" };
  const external = "--cloud-provider=external";
  assert.deepEqual(settings("--node-ip=10.0.0.1"), [[], {}, false]);
  assert.deepEqual(settings(external, "--node-ip=0.0.0.0"), [[taint], {}, true]);
  const provided = { "alpha.kubernetes.io/provided-node-ip": "10.0.0.1,fd00::1" };
  assert.deepEqual(settings(external, "--node-ip=10.0.0.1,fd00::1"), [[taint], provided, true]);
});
