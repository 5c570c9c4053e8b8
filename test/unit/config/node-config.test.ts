import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, nodeOf, refusalOf, run, sentenceOf } from "./files.ts";

test("uses the host name unless a flag sets the node's name", () => {
  assert.equal(nodeOf([]).nodeName, "worker-1.example");
  assert.equal(nodeOf(["--hostname-override= Node-A "]).nodeName, "node-a");
  assert.match(refusalOf(["--hostname-override=a_b"]), /^--hostname-override is "a_b": a node's name is/);
});

test("the provider defaults to cri if there are no settings", () => {
  const plain = nodeOf([]);
  assert.deepEqual([plain.provider, plain.providerConfig], ["cri", undefined]);
  const node = nodeOf(["--provider=ssh", "--provider-config=/p.yaml"], { "/p.yaml": "host: 10.0.0.1\nport: 22\n" });
  assert.deepEqual([node.provider, node.providerConfig], ["ssh", { host: "10.0.0.1", port: 22 }]);
  assert.match(refusalOf(["--provider-config=/none"]), /^--provider-config is "\/none": there is no such file/);
});

test("requires absolute directories, and normalizes them", () => {
  assert.equal(nodeOf(["--root-dir=/srv//kubelet/"]).rootDir, "/srv/kubelet");
  assert.equal(nodeOf([]).certDir, "/var/lib/kubelet/pki");
  assert.equal(refusalOf(["--root-dir=kubelet"]), '--root-dir is "kubelet": use an absolute path');
});

test("accepts zero or one node address, or one of each family", () => {
  assert.deepEqual(nodeOf([]).nodeIPs, []);
  assert.deepEqual(nodeOf(["--node-ip=::"]).nodeIPs, ["::"]);
  assert.deepEqual(nodeOf(["--node-ip=10.0.0.1, fd00::1"]).nodeIPs, ["10.0.0.1", "fd00::1"]);
  assert.match(refusalOf(["--node-ip=10.0.0.1,10.0.0.2"]), /one address of each family$/);
  assert.match(refusalOf(["--node-ip=10.0.0.1,::"]), /alone, or two specific addresses$/);
  assert.match(refusalOf(["--node-ip=here"]), /^--node-ip is "here": use an IP address/);
});

test("refuses labels that a node may not set on itself", () => {
  assert.match(
    refusalOf(["--node-labels=node-role.kubernetes.io/worker="]),
    /^--node-labels is "node-role\.kubernetes\.io\/worker=": a node may set labels/,
  );
  assert.match(refusalOf(["--node-labels=a=b c"]), /^--node-labels is "a=b c": a label is/);
});

test("requires an existing kubeconfig, except in a Pod", () => {
  assert.match(
    sentenceOf(() => parseCommandLine([], filesIo())),
    /^--kubeconfig is not given: /,
  );
  assert.match(
    sentenceOf(() => parseCommandLine(["--kubeconfig=/none"], filesIo())),
    /^--kubeconfig is "\/none": there is no such file/,
  );
  const inPod = parseCommandLine([], filesIo({}, { KUBERNETES_SERVICE_HOST: "10.0.0.1" }));
  assert.ok(inPod.kind === "run" && inPod.nodes[0]?.kubeconfig === undefined);
});

function graftletFile(nodes: string): Record<string, string> {
  return {
    "/n.yaml": `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\nnodes:\n${nodes}`,
    "/other": "kubeconfig",
  };
}
function several(nodes: string, ...argv: readonly string[]) {
  return run(["--nodes=/n.yaml", ...argv], graftletFile(nodes));
}

test("several nodes have separate names, ports and directories", () => {
  const { nodes, warnings, logging } = several(
    `
- name: a
- name: b
  provider: ssh
  providerConfig: {host: 10.0.0.2}
  kubeconfig: /other
  rootDir: /var/lib/kubelet
  labels: {example.org/kind: edge}
  annotations: {example.org/rack: "7 b"}
  taints: [{key: edge, effect: NoSchedule}]
  port: 10251
  kubeletConfiguration: {maxPods: 5, enableControllerAttachDetach: false}
- name: c
`,
    "-v3",
  );
  assert.deepEqual(
    nodes.map((node) => [node.nodeName, node.kubelet.port, node.kubelet.healthzPort, node.rootDir]),
    [
      ["a", 10250, 0, "/var/lib/kubelet/a"],
      ["b", 10251, 0, "/var/lib/kubelet"],
      ["c", 10252, 0, "/var/lib/kubelet/c"],
    ],
  );
  const second = nodes[1];
  assert.deepEqual(second?.providerConfig, { host: "10.0.0.2" });
  assert.equal(second?.kubeconfig, "/other");
  assert.equal(second?.kubelet.maxPods, 5);
  assert.deepEqual(second?.nodeLabels, { "example.org/kind": "edge" });
  assert.deepEqual(second?.kubelet.registerWithTaints, [{ key: "edge", effect: "NoSchedule" }]);
  assert.deepEqual(second?.configured, {
    labels: { "example.org/kind": "edge" },
    annotations: { "example.org/rack": "7 b" },
    taints: [{ key: "edge", effect: "NoSchedule" }],
  });
  assert.deepEqual(nodes[0]?.configured, { labels: {}, annotations: {}, taints: [] });
  assert.equal(nodeOf(["--node-labels=a=b"]).configured, undefined);
  assert.deepEqual(warnings, [
    {
      node: "b",
      text: "enableControllerAttachDetach (--enable-controller-attach-detach) is not supported yet: the node leaves attaching volumes to the controller",
    },
  ]);
  assert.equal(logging.verbosity, 3);
});

test("reads which DaemonSets a node runs from its settings or the flag", () => {
  const { nodes } = several("- name: a\n- {name: b, daemonSets: selected}");
  assert.deepEqual(
    nodes.map(({ daemonSets }) => daemonSets),
    [undefined, "selected"],
  );
  const one = run(["--daemon-sets=none"]);
  assert.equal(one.nodes[0]?.daemonSets, "none");
  assert.match(
    refusalOf(["--nodes=/n.yaml"], graftletFile("- {name: a, daemonSets: some}")),
    /nodes\[0\]\.daemonSets is "some": .*none or selected or all/,
  );
});

test("the process has a health port; each of its nodes has one only if it sets one", () => {
  const file = (fields: string) => ({
    "/n.yaml": `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n${fields}`,
  });
  const read = (fields: string) => run(["--nodes=/n.yaml"], file(fields));
  assert.deepEqual(read("nodes: [{name: a}]\n").health, { address: "127.0.0.1", port: 10248 });
  const given = read("healthzPort: 8080\nhealthzBindAddress: 0.0.0.0\nnodes: [{name: a}]\n");
  assert.deepEqual([given.health, given.several], [{ address: "0.0.0.0", port: 8080 }, true]);
  assert.equal(read("healthzPort: 0\nnodes: [{name: a}]\n").health, undefined);
  const own = read("healthzPort: 8080\nnodes: [{name: a, kubeletConfiguration: {healthzPort: 10248}}]\n");
  assert.equal(own.nodes[0]?.kubelet.healthzPort, 10248);
  assert.deepEqual([run([]).health, run([]).several], [undefined, false]);
  const refused = (fields: string) => refusalOf(["--nodes=/n.yaml"], file(fields));
  assert.equal(
    refused("nodes: [{name: a, port: 10248}]\n"),
    "/n.yaml: healthzPort is 10248: node a listens on that port; use another one",
  );
  assert.equal(
    refused("healthzPort: 70000\nnodes: [{name: a}]\n"),
    "/n.yaml: healthzPort is 70000: use a port from 1 to 65535, or 0 for none",
  );
  assert.match(refused("healthzBindAddress: here\nnodes: [{name: a}]\n"), /^\/n.yaml: healthzBindAddress is "here": /);
});

test("refuses invalid lists of nodes", () => {
  const refused = (nodes: string, ...argv: readonly string[]): string => sentenceOf(() => several(nodes, ...argv));
  assert.equal(refused("  []\n"), "/n.yaml: nodes is []: list at least one node");
  assert.equal(
    refused("- name: a\n- name: A\n"),
    '/n.yaml: nodes[1].name is "a": another node has that name; use unique names',
  );
  assert.equal(
    refused("- name: a\n  port: 1\n- name: b\n  port: 1\n"),
    "/n.yaml: nodes[1].port is 1: node a listens on that port; use another one",
  );
  assert.equal(
    refused("- name: a\n  rootDir: /r\n- name: b\n  rootDir: /r\n"),
    '/n.yaml: nodes[1].rootDir is "/r": node a has that root directory; use separate directories',
  );
  assert.equal(refused("- provider: cri\n"), "/n.yaml: nodes[0].name is not given; specify the node");
  assert.equal(
    refused("- name: a\n  lables: {}\n"),
    "/n.yaml: nodes[0].lables is not a field of this configuration; did you mean labels?",
  );
  assert.equal(refused("- name: a\n  port: 70000\n"), "node a: port (--port) is 70000: use a port from 1 to 65535");
  assert.match(
    refused("- name: a\n  kubeletConfiguration: {prot: 1}\n"),
    /^\/n\.yaml: nodes\[0\]\.kubeletConfiguration\.prot is 1: .*did you mean port\?$/,
  );
  assert.equal(
    refused("- name: a\n  kubeletConfiguration: {kind: Pod}\n"),
    '/n.yaml: nodes[0].kubeletConfiguration.kind is "Pod": write kind: KubeletConfiguration',
  );
  assert.equal(
    refused("- name: a\n  labels: {kubernetes.io/hostname: b}\n"),
    '/n.yaml: nodes[0].labels is "kubernetes.io/hostname": the node sets that label itself; omit it',
  );
  assert.equal(
    refused("- name: a\n  annotations: {graftlet.dev/configured: x}\n"),
    '/n.yaml: nodes[0].annotations is "graftlet.dev/configured": the node sets that annotation itself; omit it',
  );
  assert.match(
    refused("- name: a\n  annotations: {a b: x}\n"),
    /nodes\[0\]\.annotations is "a b": an annotation's key is/,
  );
  assert.match(
    refused("- name: a\n", "--node-ip=10.0.0.1"),
    /^--node-ip describes a single node and cannot be used with --nodes/,
  );
});

test("shares a Secret and a Service among the nodes in a Pod, but refuses them outside a Pod or if incomplete", () => {
  const read = (
    fields: string,
    env: Record<string, string> = { KUBERNETES_SERVICE_HOST: "10.0.0.1" },
    nodes = "{name: a}",
  ) => {
    const text = `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n${fields}nodes: [${nodes}]\n`;
    return parseCommandLine(["--nodes=/n.yaml"], filesIo({ "/n.yaml": text }, env));
  };
  const result = read(
    "certificateSecret: kept\nkubeletAddress: service\nkubeletService: api\napproveServingCertificates: true\n",
  );
  assert.ok(result.kind === "run");
  const [node] = result.nodes;
  assert.equal(node?.certificateSecret, "kept");
  assert.deepEqual(node?.kubeletAddress, { of: "service", service: "api" });
  assert.equal(node?.identity, "node");
  assert.equal(node?.approvesServing, true);
  const inPod = { KUBERNETES_SERVICE_HOST: "10.0.0.1" };
  const secrets = (fields: string) => {
    const found = read(fields, inPod, "{name: a, certificateSecret: kept.a}, {name: b}");
    const nodes = found.kind === "run" ? found.nodes : [];
    return nodes.map(({ certificateSecret, sharedCertificateSecret }) => [certificateSecret, sharedCertificateSecret]);
  };
  assert.deepEqual(secrets("certificateSecret: kept\n"), [
    ["kept.a", "kept"],
    ["kept", undefined],
  ]);
  assert.deepEqual(secrets(""), [
    ["kept.a", undefined],
    [undefined, undefined],
  ]);
  const own = read("kubeletAddress: service\nkubeletService: api\n", inPod, "{name: a, kubeletService: a}, {name: b}");
  assert.deepEqual(
    own.kind === "run" && own.nodes.map(({ kubeletAddress }) => kubeletAddress),
    ["a", "api"].map((one) => ({ of: "service", service: one })),
  );
  assert.equal(
    sentenceOf(() => read("", inPod, "{name: a, kubeletService: a}")),
    '/n.yaml: nodes[0].kubeletService is "a": it requires kubeletAddress: service; set that too, or omit this',
  );
  const unsaid = read("");
  assert.equal(unsaid.kind === "run" && unsaid.nodes[0]?.approvesServing, false);
  assert.equal(
    sentenceOf(() => read("kubeletAddress: service\n")),
    "/n.yaml: kubeletService is not given; specify the Service of kubeletAddress: service",
  );
  assert.equal(
    sentenceOf(() => read("kubeletService: api\n")),
    '/n.yaml: kubeletService is "api": it requires kubeletAddress: service; set that too, or omit this',
  );
  assert.equal(
    refusalOf(["--nodes=/n.yaml"], graftletFile("- {name: a, certificateSecret: kept}")),
    '/n.yaml: nodes[0].certificateSecret is "kept": needs graftlet to run in a Pod; omit it elsewhere',
  );
  for (const [field, value] of [
    ["certificateSecret", '"kept"'],
    ["approveServingCertificates", "true"],
  ]) {
    const outside = `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n${field}: ${value}\nnodes: [{name: a}]\n`;
    assert.equal(
      refusalOf(["--nodes=/n.yaml"], { "/n.yaml": outside }),
      `/n.yaml: ${field} is ${value}: needs graftlet to run in a Pod; omit it elsewhere`,
    );
  }
});

test("reads process-wide settings for the API server, but refuses them outside a Pod", () => {
  const read = (fields: string, env: Record<string, string> = { KUBERNETES_SERVICE_HOST: "10.0.0.1" }) => {
    const nodes = "nodes: [{name: a, kubeconfig: /k}]\n";
    const text = `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n${fields}${nodes}`;
    const result = parseCommandLine(["--nodes=/n.yaml"], filesIo({ "/n.yaml": text, "/k": "" }, env));
    assert.ok(result.kind === "run");
    return result.nodes[0];
  };
  assert.deepEqual([read("")?.endpoints, read("")?.egressTunnel], [undefined, undefined]);
  const owned = "endpointsOwner: edge.endpoints\nendpointsNamespaces: [shop]\n";
  assert.deepEqual(read(owned)?.endpoints, { owner: "edge.endpoints", namespaces: ["shop"] });
  const onNode = { KUBERNETES_SERVICE_HOST: "10.0.0.1", GRAFTLET_POD_NODE: "node-1" };
  assert.equal(read(owned, onNode)?.endpoints?.podNode, "node-1");
  assert.equal(read("egressTunnel: k3s\n", {})?.egressTunnel, "k3s");
  assert.equal(read("egressTunnel: auto\n")?.egressTunnel, undefined);
  assert.match(
    sentenceOf(() => read("endpointsOwner: edge\n", {})),
    /endpointsOwner is "edge": needs graftlet to run in a Pod/,
  );
  const local = `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n${owned}nodes: [{name: a, kubeconfig: /k, provider: cri, providerConfig: {inPod: true}}]\n`;
  const io = filesIo({ "/n.yaml": local, "/k": "" }, { KUBERNETES_SERVICE_HOST: "10.0.0.1" });
  assert.match(
    sentenceOf(() => parseCommandLine(["--nodes=/n.yaml"], io)),
    /endpointsOwner is "edge\.endpoints": nodes\[0\] has inPod: the Pod uses the machine's network/,
  );
  assert.match(
    sentenceOf(() => read("egressTunnel: yes\n")),
    /egressTunnel/,
  );
});

test("requires that the bootstrap kubeconfig exists, but not the kubeconfig", () => {
  const parse = (...argv: readonly string[]) => parseCommandLine(argv, filesIo({ "/boot": "kubeconfig" }));
  const result = parse("--kubeconfig=/new", "--bootstrap-kubeconfig=/boot");
  assert.ok(result.kind === "run");
  assert.equal(result.nodes[0]?.kubeconfig, "/new");
  assert.equal(result.nodes[0]?.bootstrapKubeconfig, "/boot");
  assert.match(
    sentenceOf(() => parse("--kubeconfig=/new", "--bootstrap-kubeconfig=/none")),
    /^--bootstrap-kubeconfig is "\/none": there is no such file/,
  );
  assert.equal(
    sentenceOf(() => parse("--bootstrap-kubeconfig=/boot")),
    "--kubeconfig is not given: specify the file to write the node's credentials to",
  );
});

test("applies the command line's limits on dead containers to each of several nodes", () => {
  const flags = [
    "--minimum-container-ttl-duration=1m",
    "--maximum-dead-containers-per-container=2",
    "--maximum-dead-containers=100",
  ];
  const limits = { minAgeMs: 60_000, perContainer: 2, all: 100 };
  assert.deepEqual(nodeOf([]).deadContainers, { minAgeMs: 0, perContainer: 1, all: -1 });
  assert.deepEqual(nodeOf(flags).deadContainers, limits);
  const nodes =
    "apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\nnodes: [{name: a, kubeconfig: /kubeconfig}]\n";
  assert.deepEqual(run(["--nodes=/n", ...flags], { "/n": nodes }).nodes[0]?.deadContainers, limits);
  assert.match(
    refusalOf(["--minimum-container-ttl-duration=-1s"]),
    /^--minimum-container-ttl-duration is "-1s": use a value of 0 or more$/,
  );
});
