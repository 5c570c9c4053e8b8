import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, sentenceOf } from "./files.ts";

const file = (body: string) => ({
  "/nodes.yaml": `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\ncertificateSecret: c\n${body}`,
});
const inPod = { KUBERNETES_SERVICE_HOST: "10.0.0.1" };

function fleetOf(body: string, env: Readonly<Record<string, string>> = inPod) {
  const run = parseCommandLine(["--nodes=/nodes.yaml", "--cert-dir=/pki"], filesIo(file(body), env));
  if (run.kind !== "run") throw new Error(run.kind);
  assert.ok(run.fleet);
  return { ...run, fleet: run.fleet };
}
const fleet = (more = "kubeletAddress: service\n") => `${more}fleet: { release: edge, nodeNames: ["edge-*", "n.1"] }\n`;

test("a configuration with a fleet needs no nodes", () => {
  const { nodes, several, fleet: read } = fleetOf(fleet());
  assert.deepEqual(
    [nodes, several, read.release, read.directory, read.hasServices],
    [[], true, "edge", "/pki/_logins", true],
  );
});

test("an asterisk in a name pattern matches any part of a node name; all other characters match literally", () => {
  const { fleet: read } = fleetOf(fleet());
  const names = ["edge-1", "edge-", "edge-a.b", "n.1", "nx1", "my-edge-1", "edge", "edge-1\nx", "Edge-1"];
  assert.deepEqual(names.filter(read.mayHave), ["edge-1", "edge-", "edge-a.b", "n.1"]);
});

test("decodes a node with the settings shared by all nodes, and without a health port", () => {
  const { fleet: read } = fleetOf(`approveServingCertificates: true\n${fleet()}`);
  const entry = { name: "edge-1", provider: "ssh", port: 10_300, kubeletService: "graftlet-edge-1" };
  const node = read.decodeNode(entry, { title: "GraftedNode edge-1", certificateSecret: "own" });
  assert.deepEqual(
    [node.nodeName, node.kubelet.port, node.kubelet.healthzPort, node.certificateSecret, node.approvesServing],
    ["edge-1", 10_300, 0, "own", true],
  );
  assert.deepEqual(node.kubeletAddress, { of: "service", service: "graftlet-edge-1" });
  assert.equal(node.rootDir, "/var/lib/kubelet/edge-1");
});

test("reports an invalid field with its object and path", () => {
  const { fleet: read } = fleetOf(fleet());
  const object = { title: "GraftedNode edge-1", certificateSecret: "own" };
  const refused = (entry: object) =>
    sentenceOf(() => read.decodeNode({ name: "edge-1", provider: "ssh", kubeletService: "s", ...entry }, object));
  assert.match(
    refused({ kubeletConfiguration: { maxPods: "x" } }),
    /^GraftedNode edge-1: spec\.kubeletConfiguration\.maxPods/,
  );
  assert.match(refused({ labels: { "kubernetes.io/x": "y" } }), /^GraftedNode edge-1: spec\.labels/);
});

test("refuses an invalid fleet section, and names the remedy", () => {
  const refused = (body: string, env = inPod as Readonly<Record<string, string>>) =>
    sentenceOf(() => fleetOf(body, env));
  assert.match(
    refused('fleet: { release: edge, nodeNames: ["*"] }\nkubeletAddress: podIP\n'),
    /fleet\.nodeNames.*edge-\*/,
  );
  assert.match(refused("fleet: { release: edge }\nkubeletAddress: podIP\n"), /fleet\.nodeNames/);
  assert.match(refused("fleet: { nodeNames: [a] }\nkubeletAddress: podIP\n"), /fleet\.release is not given/);
  assert.match(refused(fleet(""), inPod), /kubeletAddress is "host".*set service or podIP/);
  const outside = 'fleet: { release: edge, nodeNames: ["e-*"] }\nkubeletAddress: podIP\n';
  assert.match(
    sentenceOf(() => parseCommandLine(["--nodes=/nodes.yaml"], filesIo(file(outside)))),
    /needs graftlet to run in a Pod/,
  );
  assert.match(refused("nodes: []\n"), /nodes.*list at least one node/);
});

test("requires a key file for the reverse tunnel listener", () => {
  const withListener = (listener: string) =>
    `kubeletAddress: service\nfleet: { release: edge, nodeNames: ["edge-*"], listener: ${listener} }\n`;
  assert.deepEqual(fleetOf(withListener("{ port: 2222, hostKeyFile: /k }")).fleet.listener, {
    port: 2222,
    hostKeyFile: "/k",
  });
  assert.equal(fleetOf(fleet()).fleet.listener, undefined);
  assert.match(
    sentenceOf(() => fleetOf(withListener("{ port: 2222 }"))),
    /fleet\.listener\.hostKeyFile is not given/,
  );
});

test("nodeObjects takes the name of the release whose nodes are shown as objects, and works only in a Pod", () => {
  const read = (body: string, env: Readonly<Record<string, string>> = inPod) => {
    const nodes = "nodes: [{ name: a, kubeconfig: /kubeconfig }]\n";
    const text = file(`${body}${nodes}`)["/nodes.yaml"].replace("certificateSecret: c\n", "");
    const run = parseCommandLine(["--nodes=/nodes.yaml"], filesIo({ "/nodes.yaml": text }, env));
    return run.kind === "run" ? run.nodeObjects : undefined;
  };
  assert.deepEqual(read("nodeObjects: { release: edge }\n"), { release: "edge" });
  assert.equal(read(""), undefined);
  assert.match(
    sentenceOf(() => read("nodeObjects: {}\n")),
    /nodeObjects\.release is not given; specify the Helm release/,
  );
  assert.match(
    sentenceOf(() => read("nodeObjects: { release: edge }\n", {})),
    /nodeObjects is "edge": needs graftlet to run in a Pod/,
  );
});
