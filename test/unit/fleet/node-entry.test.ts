import assert from "node:assert/strict";
import { test } from "node:test";
import type { GraftedNode, GraftedNodeSpec } from "../../../src/fleet/grafted-node.ts";
import { nodeEntry } from "../../../src/fleet/node-entry.ts";

const objectWith = (spec: GraftedNodeSpec): GraftedNode => ({
  metadata: { name: "edge-1", namespace: "edge", uid: "1" },
  spec,
});
const input = {
  providerID: "graftlet://edge/release/edge-1",
  port: 10_251,
  kubeletService: "graftlet-edge-1",
  logins: [{ privateKeyFile: "/k/0" }],
  reverse: undefined,
};

test("a minimal object has the defaults of a node of the chart's values", () => {
  const object = objectWith({ ssh: { host: "edge-1.example", secretRef: { name: "login" } } });
  assert.deepEqual(nodeEntry(object, input), {
    name: "edge-1",
    provider: "ssh",
    providerConfig: { user: "root", host: "edge-1.example", privateKeyFile: "/k/0", network: "tunneled" },
    port: 10_251,
    kubeletService: "graftlet-edge-1",
    labels: { "graftlet.dev/target": "edge-1", "node.kubernetes.io/exclude-from-external-load-balancers": "" },
    annotations: {},
    taints: [{ key: "graftlet.dev/target", value: "edge-1", effect: "NoSchedule" }],
    kubeletConfiguration: { providerID: "graftlet://edge/release/edge-1", serverTLSBootstrap: true },
  });
});

test("an object's fields override the defaults, and each jump host gets its own login", () => {
  const object = objectWith({
    ssh: {
      host: "edge-1",
      user: "ubuntu",
      proxyJump: [{ host: "bastion", secretRef: { name: "b" } }],
      cri: { sharing: "exclusive" },
    },
    network: "routed",
    rootDir: "/data/kubelet",
    daemonSets: "all",
    labels: { site: "north" },
    taints: [{ key: "dedicated", effect: "NoExecute" }],
    defaultTaint: false,
    reserved: { cpu: 1, memory: "512Mi" },
    kubeletConfiguration: { maxPods: 30 },
  });
  const entry = nodeEntry(object, {
    ...input,
    kubeletService: undefined,
    logins: [{ privateKeyFile: "/k/0" }, { passwordFile: "/k/1" }],
  });
  assert.deepEqual(entry["providerConfig"], {
    user: "ubuntu",
    host: "edge-1",
    cri: { sharing: "exclusive" },
    privateKeyFile: "/k/0",
    network: "routed",
    proxyJump: [{ user: "root", host: "bastion", passwordFile: "/k/1" }],
  });
  assert.equal("kubeletService" in entry, false);
  assert.deepEqual(entry["taints"], [{ key: "dedicated", effect: "NoExecute" }]);
  assert.equal((entry["labels"] as Record<string, string>)["site"], "north");
  assert.deepEqual(entry["kubeletConfiguration"], {
    providerID: "graftlet://edge/release/edge-1",
    serverTLSBootstrap: true,
    systemReserved: { cpu: "1", memory: "512Mi" },
    maxPods: 30,
  });
});

test("a machine with a reverse tunnel has the object's name as its host unless the object sets one", () => {
  const listener = { port: 2222, hostKeyFile: "/k/listener", authorizedKeysFile: "/k/0/authorized_keys" };
  const configOf = (ssh: GraftedNodeSpec["ssh"]) =>
    nodeEntry(objectWith({ ssh }), { ...input, reverse: listener })["providerConfig"] as Record<string, unknown>;
  const nameless = configOf({ reverse: { authorizedKeys: ["ssh-ed25519 AAAA"] } });
  assert.deepEqual([nameless["host"], nameless["reverse"]], ["edge-1", listener]);
  assert.equal(configOf({ host: "edge-1.example", reverse: {} })["host"], "edge-1.example");
});
