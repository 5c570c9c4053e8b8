import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, sentenceOf } from "./files.ts";

const files = {
  "/ssh.yaml": "host: edge-1.example\nuser: root\nrootDir: /srv/graftlet\n",
  "/cri.yaml": "sharing: shared\n",
  "/n.yaml": `apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
nodes:
  - { name: one, provider: docker, kubeconfig: /gone }
  - { name: two, provider: ssh, providerConfig: { host: two.example } }
`,
};

function removalOf(...argv: readonly string[]) {
  const asked = parseCommandLine(["remove", ...argv], filesIo(files));
  assert.ok(asked.kind === "remove");
  return asked;
}

test("remove: accepts the node's flags, and needs no existing kubeconfig", () => {
  const { node, yes } = removalOf(
    "--provider=docker",
    "--hostname-override=Edge-1",
    "--root-dir=/srv/k",
    "--kubeconfig=/gone",
    "--yes",
  );
  assert.deepEqual(
    [node.provider, node.nodeName, node.rootDir, node.kubeconfig, yes],
    ["docker", "edge-1", "/srv/k", undefined, true],
  );
  assert.equal(removalOf().yes, false);
});

test("remove: selects the ssh provider if the settings name a host but no provider", () => {
  assert.equal(removalOf("--provider-config=/ssh.yaml").node.provider, "ssh");
  assert.equal(removalOf("--provider-config=/cri.yaml").node.provider, "cri");
  assert.equal(removalOf("--provider-config=/ssh.yaml", "--provider=cri").node.provider, "cri");
});

test("remove: requires the name of a node if the file has several", () => {
  const { node } = removalOf("--nodes=/n.yaml", "--node=two");
  assert.deepEqual([node.nodeName, node.provider, node.rootDir], ["two", "ssh", "/var/lib/kubelet/two"]);
  assert.equal(
    sentenceOf(() => removalOf("--nodes=/n.yaml")),
    "--node is not given: use one of the nodes in /n.yaml: one, two",
  );
  assert.equal(
    sentenceOf(() => removalOf("--nodes=/n.yaml", "--node=three")),
    '--node is "three": use one of the nodes in /n.yaml: one, two',
  );
  assert.match(
    sentenceOf(() => removalOf("--node=one")),
    /^--node is "one": it selects a node of the --nodes file; /,
  );
  assert.match(
    sentenceOf(() => parseCommandLine(["--kubeconfig=/kubeconfig", "--yes"], filesIo(files))),
    /^--yes is not a flag of graftlet/,
  );
});
