import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, sentenceOf } from "./files.ts";

const files = {
  "/ssh.yaml": "host: edge-1.example\nuser: root\n",
  "/kubeconfig": "",
  "/pod.yaml": "kind: Pod\nspec: { containers: [] }\n",
  "/n.yaml": `apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
certificateSecret: certificates
nodes:
  - { name: one, provider: docker, kubeconfig: /gone }
  - { name: two, provider: ssh, providerConfig: { host: two.example } }
`,
  "/fleet.yaml": `apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
kubeletAddress: service
kubeletService: one
fleet: { release: edge, nodeNames: ["edge-*"] }
nodes:
  - { name: one, provider: ssh, providerConfig: { host: one.example } }
`,
};
const inPod = { KUBERNETES_SERVICE_HOST: "10.0.0.1" };

function asked(...argv: readonly string[]) {
  const parsed = parseCommandLine(["doctor", ...argv], filesIo(files));
  assert.ok(parsed.kind === "doctor");
  return { ...parsed, nodes: parsed.nodes.map(({ nodeName, provider }) => `${nodeName} by ${provider}`) };
}

test("doctor: examines the nodes in a file, one selected node, or the node described by flags; the cluster only if given a kubeconfig", () => {
  assert.deepEqual(asked("--nodes=/n.yaml"), {
    kind: "doctor",
    nodes: ["one by docker", "two by ssh"],
    fleet: undefined,
    kubeconfig: undefined,
    process: {
      health: { address: "127.0.0.1", port: 10248 },
      page: undefined,
      statusSocket: "/var/lib/kubelet/pki/status.sock",
    },
    output: "text",
    manifest: undefined,
  });
  const one = asked(
    "--provider-config=/ssh.yaml",
    "--hostname-override=edge-1",
    "--kubeconfig=/kubeconfig",
    "--page-port=4194",
    "-o",
    "json",
  );
  assert.deepEqual([one.nodes, one.kubeconfig, one.output], [["edge-1 by ssh"], "/kubeconfig", "json"]);
  assert.deepEqual([one.process.health, one.process.page], [undefined, { address: "127.0.0.1", port: 4194 }]);
  assert.deepEqual(asked("--nodes=/n.yaml", "--node=two").nodes, ["two by ssh"]);
});

test("doctor: in the Pod of a fleet, examines all GraftedNodes and the nodes in the file; a name not in the file is a GraftedNode", () => {
  const examined = (argv: readonly string[], env: Readonly<Record<string, string>> = inPod) => {
    const parsed = parseCommandLine(["doctor", "--nodes=/fleet.yaml", ...argv], filesIo(files, env));
    assert.ok(parsed.kind === "doctor");
    const { nodes, fleet } = parsed;
    return [nodes.map(({ nodeName }) => nodeName), fleet && { release: fleet.config.release, node: fleet.node }];
  };
  assert.deepEqual(examined([]), [["one"], { release: "edge", node: undefined }]);
  assert.deepEqual(examined(["--node=edge-1"]), [[], { release: "edge", node: "edge-1" }]);
  assert.deepEqual(examined(["--node=one"]), [["one"], undefined]);
  assert.deepEqual(examined(["--kubeconfig=/kubeconfig"]), [["one"], undefined]);
  assert.deepEqual(examined([], {}), [["one"], undefined]);
  assert.match(
    sentenceOf(() => examined(["--node=edge-1"], {})),
    /--node is "edge-1": use one of the nodes in \/fleet\.yaml: one/,
  );
});

test("each command reads the file of nodes only once", () => {
  const commands = [
    ["doctor"],
    ["leave", "--kubeconfig=/kubeconfig"],
    ["remove", "--node=two"],
    ["--kubeconfig=/kubeconfig"],
  ];
  for (const command of commands) {
    const io = filesIo({ ...files, "/gone": "" }, inPod);
    const read: string[] = [];
    parseCommandLine([...command, "--nodes=/n.yaml"], {
      ...io,
      readFile: (path) => (read.push(path), io.readFile(path)),
    });
    assert.equal(read.filter((path) => path === "/n.yaml").length, 1, command.join(" "));
  }
});

test("doctor pod: reads a manifest, and refuses invalid command lines", () => {
  const { manifest, nodes } = asked("pod", "/pod.yaml", "--nodes=/n.yaml", "--node=one", "-ojson");
  assert.deepEqual([manifest?.["kind"], nodes], ["Pod", ["one by docker"]]);
  const refused = (...argv: readonly string[]) => sentenceOf(() => asked(...argv));
  assert.match(refused("pod", "--nodes=/n.yaml"), /doctor pod needs a file: set the path of a pod's manifest/);
  assert.match(refused("pod", "/gone.yaml"), /doctor pod is "\/gone\.yaml": there is no such file/);
  assert.match(refused("-o", "yaml"), /--output is "yaml": expected text or json/);
  assert.match(refused("now"), /argument is "now": graftlet takes flags only/);
});
