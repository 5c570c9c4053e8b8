import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, sentenceOf } from "./files.ts";

const files = {
  "/ssh.yaml": "host: edge-1.example\nuser: root\n",
  "/n.yaml": `apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
certificateSecret: certificates
nodes:
  - { name: one, provider: docker, kubeconfig: /gone }
  - { name: two, provider: ssh, providerConfig: { host: two.example } }
`,
  "/fleet.yaml":
    'apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\nkubeletAddress: service\nfleet: { release: edge, nodeNames: ["edge-*"] }\n',
};

function leavingOf(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const asked = parseCommandLine(["leave", ...argv], filesIo(files, env));
  assert.ok(asked.kind === "leave");
  return { ...asked, nodes: asked.nodes.map(({ nodeName }) => nodeName) };
}

test("leave: removes all nodes in the file, or the selected one, using the command's kubeconfig", () => {
  const admin = "--kubeconfig=/kubeconfig";
  assert.deepEqual(leavingOf([admin, "--nodes=/n.yaml"]), {
    kind: "leave",
    nodes: ["one", "two"],
    fleet: undefined,
    kubeconfig: "/kubeconfig",
    deployment: undefined,
    timeoutMs: 300_000,
    yes: false,
  });
  const one = leavingOf([admin, "--nodes=/n.yaml", "--node=two", "--timeout=90s", "--yes"]);
  assert.deepEqual([one.nodes, one.timeoutMs, one.yes], [["two"], 90_000, true]);
  assert.deepEqual(leavingOf([admin, "--provider-config=/ssh.yaml", "--hostname-override=edge-1"]).nodes, ["edge-1"]);
});

test("leave: uses the service account and its namespace in a Pod", () => {
  const pod = { KUBERNETES_SERVICE_HOST: "10.0.0.1" };
  const own = leavingOf(["--nodes=/n.yaml", "--deployment=edge"], pod);
  assert.deepEqual([own.kubeconfig, own.deployment], [undefined, { namespace: undefined, name: "edge" }]);
  const elsewhere = leavingOf(["--nodes=/n.yaml", "--kubeconfig=/kubeconfig", "--deployment=other/edge"]);
  assert.deepEqual(elsewhere.deployment, { namespace: "other", name: "edge" });
});

test("leave: removes a release's GraftedNodes together with its nodes, but only in its Pod", () => {
  const pod = { KUBERNETES_SERVICE_HOST: "10.0.0.1" };
  const own = leavingOf(["--nodes=/fleet.yaml", "--deployment=edge"], pod);
  assert.deepEqual(own.nodes, []);
  assert.deepEqual([own.fleet?.mayHave("edge-1"), own.fleet?.mayHave("other")], [true, false]);
  assert.equal(leavingOf(["--nodes=/n.yaml"], pod).fleet, undefined);
  assert.equal(leavingOf(["--nodes=/fleet.yaml", "--kubeconfig=/kubeconfig"]).fleet, undefined);
});

test("leave: refuses invalid combinations of flags in one sentence", () => {
  const refusal = (...argv: readonly string[]) => sentenceOf(() => leavingOf(argv));
  assert.match(refusal("--nodes=/n.yaml"), /^--kubeconfig is not given: graftlet needs an API server; /);
  const admin = ["--kubeconfig=/kubeconfig", "--nodes=/n.yaml"];
  assert.equal(
    refusal(...admin, "--deployment=edge"),
    '--deployment is "edge": it has no namespace, and graftlet is not in a Pod; use NAMESPACE/NAME',
  );
  assert.equal(refusal(...admin, "--deployment=a/b/c"), '--deployment is "a/b/c": use NAME or NAMESPACE/NAME');
  assert.equal(refusal(...admin, "--deployment=a/"), '--deployment is "a/": use NAME or NAMESPACE/NAME');
  assert.match(refusal(...admin, "--deployment=a/b", "--node=one"), /stops graftlet for all nodes of the file; /);
  assert.equal(refusal(...admin, "--node=three"), '--node is "three": use one of the nodes in /n.yaml: one, two');
  assert.match(refusal(...admin, "--timeout=soon"), /^--timeout is "soon": expected a duration/);
});
