import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { cp, mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { parse, stringify } from "yaml";
import { templateArguments } from "../harness/chart.ts";
import { chart, findHelm } from "../harness/helm.ts";
import { run } from "../harness/processes.ts";

const node = ["nodes[0].name=edge-1", "nodes[0].ssh.host=192.0.2.7", "nodes[0].ssh.existingSecret=edge-1-ssh"];
/** A second node on the machine of the first. */
const sameMachine = (name: string) => [
  `nodes[1].name=${name}`,
  "nodes[1].ssh.host=192.0.2.7",
  "nodes[1].ssh.existingSecret=x",
];
const privateKey = "-----BEGIN OPENSSH PRIVATE KEY-----";
const fingerprint = `SHA256:${"A".repeat(43)}`;

/** Settings beside those of a node that is right, and what helm says of them. */
const wrong: readonly (readonly [readonly string[], RegExp])[] = [
  [
    ["monitoring.serviceMonitor.enabled=true", "kubeletAddress=podIP"],
    /monitoring\.serviceMonitor\.enabled: nodes are scraped through their Services/,
  ],
  [["nodes[0].prot=10250"], /'\/nodes\/0': additional properties 'prot' not allowed/],
  [["kubeletAdress=podIP"], /at '': additional properties 'kubeletAdress' not allowed/],
  [["nodes[0].ssh.hots=x"], /'\/nodes\/0\/ssh': additional properties 'hots' not allowed/],
  [["nodes[0].port=high"], /'\/nodes\/0\/port': got string, want integer/],
  [["nodes[0].port=70000"], /'\/nodes\/0\/port': maximum: got 70,000, want 65,535/],
  [["nodes[0].identity=kubelet"], /'\/nodes\/0\/identity': value must be one of 'node', 'serviceAccount'/],
  [["nodes[0].daemonSets=some"], /'\/nodes\/0\/daemonSets': value must be one of 'none', 'selected', 'all'/],
  [["approveServingCertificates=maybe"], /'\/approveServingCertificates': got string, want boolean/],
  [["onUninstall=stay"], /'\/onUninstall': value must be one of 'leave', 'drain'/],
  [["nodes[0].labels.rack=7"], /'\/nodes\/0\/labels\/rack': got number, want string/],
  [["nodes[0].taints[0].key=a"], /'\/nodes\/0\/taints\/0': missing property 'effect'/],
  [["nodes[1].ssh.host=x"], /'\/nodes\/1': missing property 'name'/],
  [["nodes[0].name=Edge_1"], /nodes\[0\]\.name "Edge_1" cannot be a node's name: write at most 63 lower-case letters/],
  [
    ["nodes[1].name=edge-1", "nodes[1].ssh.host=x", "nodes[1].ssh.existingSecret=x"],
    /nodes\[1\]\.name: nodes\[0\] is also called edge-1: give each node its own name/,
  ],
  [
    ["nodes[0].port=1", "nodes[1].name=b", "nodes[1].port=1", "nodes[1].ssh.host=x", "nodes[1].ssh.existingSecret=x"],
    /nodes\[1\]\.port: nodes\[0\] also has port 1: give each node its own port, or leave port out/,
  ],
  [["nodes[0].port=10248"], /nodes\[0\]\.port: graftlet answers probes at port 10248/],
  [["pagePort=10250"], /pagePort: 10250 is used by a node, by the probes or by the listener: choose another/],
  [["pagePort=10248"], /pagePort: 10248 is used by a node, by the probes or by the listener/],
  [["pagePort=70000"], /'\/pagePort': maximum: got 70,000, want 65,535/],
  [["nodes[0].cri.sharing=shared"], /nodes\[0\] has both ssh and cri: keep the one by which graftlet reaches/],
  [["nodes[0].provider=docker"], /nodes\[0\] has provider: docker and ssh: make them agree/],
  [["nodes[1].name=b"], /nodes\[1\] does not say how its machine is reached: add ssh with host and existingSecret/],
  [
    ["nodes[1].name=b", "nodes[1].provider=docker"],
    /nodes\[1\]: docker makes the Pod privileged on the machine that it runs on, .*: add local: true to confirm/,
  ],
  [["nodes[0].local=true"], /nodes\[0\]\.local: a machine that is reached over SSH is not the Pod's own/],
  [
    ["nodes[1].name=b", "nodes[1].local=true", "nodes[1].cri.endpoint=/run/x.sock"],
    /nodes\[1\]\.cri\.endpoint "\/run\/x\.sock" is not a Unix socket: write it as unix:\/\/\//,
  ],
  [["nodes[0].ssh.host="], /nodes\[0\]\.ssh\.host "" is not a host name or address/],
  [
    ["nodes[0].ssh.existingSecret="],
    /nodes\[0\]\.ssh has no way to log in: name a Secret that has the key as ssh-priv/,
  ],
  [["nodes[0].ssh.existingSecret=Edge/Key"], /nodes\[0\]\.ssh\.existingSecret "Edge\/Key" cannot be a Secret's name/],
  [["nodes[0].ssh.privateKeyFile=/k"], /nodes\[0\]\.ssh has both existingSecret and privateKeyFile/],
  [["nodes[0].ssh.privateKey=edge-1"], /nodes\[0\]\.ssh has both existingSecret and privateKey: /],
  [
    ["nodes[0].ssh.existingSecret=", "nodes[0].ssh.privateKey=edge-1"],
    /nodes\[0\]\.ssh\.privateKey is not a private key: pass the file's content with --set-file/,
  ],
  [
    ["nodes[0].ssh.existingSecret=", `nodes[0].ssh.privateKey=${privateKey}`],
    /nodes\[0\]\.ssh does not say which host key is trusted: add knownHosts, hostKeyFingerprints/,
  ],
  [
    [
      "nodes[0].ssh.existingSecret=",
      `nodes[0].ssh.privateKey=${privateKey}`,
      "nodes[0].ssh.knownHosts=k",
      `nodes[0].ssh.hostKeyFingerprints[0]=${fingerprint}`,
    ],
    /nodes\[0\]\.ssh has both knownHosts and hostKeyFingerprints/,
  ],
  [["nodes[0].ssh.knownHosts=k"], /nodes\[0\]\.ssh\.knownHosts requires privateKey/],
  [["nodes[0].ssh.proxyJump[0].privateKey=k"], /proxyJump\/0': additional properties 'privateKey' not allowed/],
  [
    ["nodes[0].ssh.existingSecret=", "nodes[0].ssh.agentSocket=/a", "nodes[0].ssh.login=key"],
    /nodes\[0\]\.ssh\.login selects keys of existingSecret/,
  ],
  [
    ["nodes[0].ssh.existingSecret=", "nodes[0].ssh.agentSocket=/a"],
    /nodes\[0\]\.ssh does not say which host key is trusted: add hostKeyFingerprints, hostCertificateAuthorities, or knownHostsFile/,
  ],
  [["nodes[0].ssh.proxy=ftp://proxy"], /ssh\/proxy': 'ftp:\/\/proxy' does not match pattern/],
  [["nodes[0].ssh.proxy=http://me:secret@proxy"], /nodes\[0\]\.ssh\.proxy has a password: put it into the Secret/],
  [
    ["nodes[0].ssh.reverse=true"],
    /reverse\.existingSecret "" cannot be a Secret's name: name the Secret that has the private key of the listener/,
  ],
  [
    ["nodes[0].ssh.reverse=true", "reverse.existingSecret=l", "nodes[0].ssh.proxy=http://p"],
    /nodes\[0\]\.ssh has both reverse and proxy/,
  ],
  [
    ["nodes[0].ssh.reverse=true", "reverse.existingSecret=l", "reverse.port=10250"],
    /reverse\.port: 10250 is used by a node/,
  ],
  [["nodes[0].ssh.proxyJump[0].host=jump"], /nodes\[0\]\.ssh\.proxyJump\[0\] has no way to log in: name a Secret/],
  [["nodes[0].ssh.proxyJump[0].runtime=auto"], /proxyJump\/0': additional properties 'runtime' not allowed/],
  [["nodes[0].ssh.passphraseFile=/p"], /nodes\[0\]\.ssh\.passphraseFile requires privateKeyFile/],
  [["nodes[0].ssh.certificateFile=/c"], /nodes\[0\]\.ssh\.certificateFile requires privateKeyFile/],
  [
    ["nodes[0].ssh.hostCertificateAuthorities[0]=ca.pub"],
    /"ca\.pub" is not a fingerprint: .* the authority's public key/,
  ],
  [
    [`nodes[0].ssh.hostCertificateAuthorities[0]=${fingerprint}`, "nodes[0].ssh.knownHostsFile=/k"],
    /nodes\[0\]\.ssh has both hostCertificateAuthorities and knownHostsFile/,
  ],
  [["nodes[0].ssh.hostKeyFingerprints[0]=MD5:aa"], /"MD5:aa" is not a fingerprint: write it as ssh-keygen -lf/],
  [
    [`nodes[0].ssh.hostKeyFingerprints[0]=${fingerprint}`, "nodes[0].ssh.knownHostsFile=/k"],
    /nodes\[0\]\.ssh has both hostKeyFingerprints and knownHostsFile/,
  ],
  [
    ["nodes[0].ssh.hostKey=trustOnFirstUse"],
    /nodes\[0\]\.ssh\.hostKey: a host key that is trusted on first use must outlive/,
  ],
  [["nodes[0].ssh.rootDir=kubelet"], /nodes\[0\]\.ssh\.rootDir "kubelet" is not an absolute path/],
  [["nodes[0].rootDir=kubelet"], /nodes\[0\]\.rootDir "kubelet" is not a valid root directory: write an absolute path/],
  [["nodes[0].rootDir=/srv/../kubelet"], /nodes\[0\]\.rootDir "\/srv\/\.\.\/kubelet" is not a valid root directory/],
  [["nodes[0].rootDir=/"], /nodes\[0\]\.rootDir "\/" is not a valid root directory/],
  [["nodes[0].rootDir=/a", "nodes[0].ssh.rootDir=/a"], /nodes\[0\] has both rootDir and ssh\.rootDir: keep one/],
  [
    ["nodes[0].rootDir=/var/lib/kubelet", ...sameMachine("b"), "nodes[1].rootDir=/var/lib/kubelet"],
    /nodes\[1\]\.rootDir: nodes\[0\] also has \/var\/lib\/kubelet on that machine: give each node its own, or none/,
  ],
  [
    ["nodes[0].rootDir=/var/lib/kubelet", ...sameMachine("b"), "nodes[1].ssh.rootDir=/var/lib/kubelet"],
    /nodes\[1\]\.ssh\.rootDir: nodes\[0\] also has \/var\/lib\/kubelet on that machine/,
  ],
  [
    ["nodes[0].rootDir=/var/lib/kubelet", ...sameMachine("pods")],
    /nodes\[1\]\.rootDir: nodes\[0\] stores its own files in \/var\/lib\/kubelet\/pods: choose another directory/,
  ],
  [["nodes[0].ssh.runtime=/run/x.sock"], /nodes\[0\]\.ssh\.runtime "\/run\/x\.sock": write auto, or a socket/],
  [["nodes[0].ssh.kubernetesService=here"], /nodes\[0\]\.ssh\.kubernetesService "here": write the host:port/],
  [["nodes[0].labels.kubernetes\\.io/role=x"], /nodes\[0\]\.labels: a node cannot set kubernetes\.io\/role/],
  [
    ["nodes[0].annotations.graftlet\\.dev/configured=x"],
    /nodes\[0\]\.annotations: graftlet\.dev\/configured is set by the node itself: leave it out/,
  ],
  [["nodes[0].labels.graftlet\\.dev/target=x"], /nodes\[0\]\.labels: graftlet\.dev\/target is set by the chart/],
  [["nodes[0].kubeletConfiguration.port=1"], /nodes\[0\]\.kubeletConfiguration\.port: set nodes\[0\]\.port instead/],
  [["image.digest=latest"], /image\.digest "latest" is not a digest/],
  [["kubeletAddress=host"], /kubeletAddress: host is the address of the machine that the Pod runs on/],
  [
    ["nodes[0].identity=serviceAccount"],
    /rbac\.namespaces is empty, and the identity of \S+ is graftlet's account, .*: list the namespaces .*, or set rbac\.allNamespaces: true/,
  ],
  [
    ["nodes[0].identity=serviceAccount", "rbac.namespaces[0]=shop", "rbac.allNamespaces=true"],
    /rbac\.allNamespaces and rbac\.namespaces exclude each other/,
  ],
  [["platform=gce"], /'\/platform': value must be one of '', 'aks', 'eks', 'gke', 'k3s', 'openshift', 'rke2'/],
  [["servingCertificateSigner=serving"], /'\/servingCertificateSigner': 'serving' does not match pattern/],
  [
    ["platform=eks", "rbac.namespaces[0]=shop", "fleet.enabled=true", "fleet.nodeNames[0]=edge-*"],
    /fleet\.enabled: GraftedNodes need client certificates, which EKS does not sign/,
  ],
  [["rbac.namespaces[0]=shop"], /rbac\.namespaces: no node has identity: serviceAccount/],
  [["serviceAccount.create=false"], /serviceAccount\.name is empty/],
  [
    ["networkPolicy.create=true"],
    /networkPolicy\.apiServer is empty, so logs and exec would fail: list the control plane's addresses/,
  ],
  [
    ["networkPolicy.create=true", "networkPolicy.apiServer[0]=10.0.0.1"],
    /"10\.0\.0\.1" is not a CIDR: write an address/,
  ],
  [
    ["nodes[1].name=b", "nodes[1].local=true", "nodes[1].provider=docker", "networkPolicy.create=true"],
    /networkPolicy\.create: a Pod of nodes with local: true is in the machine's own network/,
  ],
  [
    ["nodes[1].name=b", "nodes[1].local=true", "nodes[1].provider=docker", "publishServices.enabled=true"],
    /publishServices\.enabled: a Pod of nodes with local: true is in the machine's own network/,
  ],
  [["namespaceOverride=Edge_1"], /'\/namespaceOverride': 'Edge_1' does not match pattern/],
  [["revisionHistoryLimit=-1"], /'\/revisionHistoryLimit': minimum: got -1, want 0/],
  [["fleet.enabled=true"], /fleet\.nodeNames is empty: list the names that nodes of GraftedNodes may have, such as/],
  [["fleet.nodeNames[0]=*"], /fleet\.nodeNames\[0\]: \* would let graftlet's account become any node: write a part/],
  [
    ["fleet.nodeNames[0]=e-*", "fleet.nodeNames[1]=*-*"],
    /fleet\.nodeNames\[1\]: \*-\* would let graftlet's account become/,
  ],
  [["fleet.nodeNames[0]=kube*"], /fleet\.nodeNames\[0\]: kube\* allows kubernetes, which is a name of the API server/],
  [["fleet.nodeNames[0]=*.svc"], /fleet\.nodeNames\[0\]: \*\.svc allows kubernetes\.default\.svc, which is a name of/],
  [["fleet.nodeNames[0]=Edge-*"], /'\/fleet\/nodeNames\/0': 'Edge-\*' does not match pattern/],
  [["fleet.nodeNames[0]=edge-(a|b)"], /'\/fleet\/nodeNames\/0': 'edge-\(a\|b\)' does not match pattern/],
  [
    [
      "fleet.enabled=true",
      "fleet.nodeNames[0]=edge-*",
      "nodes[1].name=b",
      "nodes[1].local=true",
      "nodes[1].provider=docker",
    ],
    /fleet\.enabled: a Pod of nodes with local: true is in the machine's own network/,
  ],
  [
    ["fleet.enabled=true", "fleet.nodeNames[0]=edge-*", "kubeletAddress=host"],
    /kubeletAddress: host is the address of the machine that the Pod runs on, .* write service or podIP/,
  ],
  [["crds.keep=maybe"], /'\/crds\/keep': got string, want boolean/],
  [["drain.timeout=soon"], /drain\.timeout "soon" is not a duration: write it as 90s or 5m/],
];

describe("invalid chart values", { timeout: 600_000 }, () => {
  let helm: string;
  const refusal = async (settings: readonly string[]) => {
    const { code, stdout, stderr } = await run([
      helm,
      ...templateArguments(...settings.flatMap((set) => ["--set", set])),
    ]);
    return { code, stdout, stderr };
  };
  before(async () => {
    helm = await findHelm();
  });

  test("renders a release without nodes if no value is set", async () => {
    const { code, stdout, stderr } = await refusal([]);
    assert.deepEqual([code, stderr], [0, ""]);
    assert.match(stdout, /replicas: 0/);
    // An empty list of names would be all of them.
    assert.doesNotMatch(stdout, /resourceNames: (\[\]|null)/);
  });

  test("accepts the three settings of the shortest install", async () => {
    assert.deepEqual({ ...(await refusal(node)), stdout: "" }, { code: 0, stdout: "", stderr: "" });
  });

  for (const [settings, sentence] of wrong)
    test(`rejects ${settings.join(" ")}`, async () => {
      const { code, stdout, stderr } = await refusal([...node, ...settings]);
      assert.match(stderr, sentence);
      assert.deepEqual([code, stdout], [1, ""]);
    });
});

interface Schema {
  readonly properties: Readonly<Record<string, unknown>>;
  readonly $defs: Readonly<Record<string, Pick<Schema, "properties">>>;
}

test("takes all images from a global registry, also as a subchart", async () => {
  const helm = await findHelm();
  await using folder = await mkdtempDisposable(join(tmpdir(), "graftlet-chart-"));
  const parent = { apiVersion: "v2", name: "site", version: "0.1.0" };
  await writeFile(join(folder.path, "Chart.yaml"), stringify(parent));
  await cp(chart, join(folder.path, "charts", "graftlet"), { recursive: true });
  for (const [path, prefix] of [
    [chart, ""],
    [folder.path, "graftlet."],
  ] as const) {
    const set = ["global.imageRegistry=registry.example:5000", ...node.map((each) => `${prefix}${each}`)];
    const argv = [helm, "template", "edge", path, ...set.flatMap((each) => ["--set", each])];
    const { code, stdout, stderr } = await run(argv);
    assert.equal(code, 0, stderr);
    const images = [...stdout.matchAll(/^ *(?:- )?image: "?([^\s"]+)|name: IMAGE, value: "([^"]+)"/gm)].map(
      ([, a, b]) => a ?? b,
    );
    assert.ok(images.length >= 2);
    for (const image of images) assert.match(String(image), /^registry\.example:5000\/[a-z]/);
    assert.ok(images.includes("registry.example:5000/e2e-test-images/busybox:1.37.0-1"));
  }
});

describe("the schema and documentation of the chart's values", () => {
  const text = readFileSync(`${chart}/values.yaml`, "utf8");

  test("the schema and the README document exactly the chart's values", () => {
    const values = parse(text) as Readonly<Record<string, unknown>>;
    const schema = JSON.parse(readFileSync(`${chart}/values.schema.json`, "utf8")) as Schema;
    assert.deepEqual(Object.keys(schema.properties).sort(), Object.keys(values).sort());
    const rows = [...readFileSync(`${chart}/README.md`, "utf8").matchAll(/^\| `([^`]+)`/gm)].map(([, name]) => name);
    for (const name of leaves(values)) assert.ok(rows.includes(name), `README.md has no row for ${name}`);
    const fieldsOf = (group: string) => Object.keys(schema.$defs[group]?.properties ?? {});
    const fields = [
      ...fieldsOf("node").map((name) => `nodes[].${name}`),
      ...["ssh", "cri", "docker"].flatMap((group) => fieldsOf(group).map((name) => `nodes[].${group}.${name}`)),
    ];
    for (const name of fields) assert.ok(rows.includes(name), `README.md has no row for ${name}`);
    assert.deepEqual(
      rows.filter((name) => !leaves(values).includes(name ?? "") && !fields.includes(name ?? "")),
      [],
    );
  });
});

/** The values that a README names: maps of the chart's own are taken apart, those of Kubernetes are one value. */
function leaves(values: Readonly<Record<string, unknown>>): string[] {
  const own = new Set([
    "crds",
    "fleet",
    "global",
    "image",
    "publishServices",
    "reverse",
    "monitoring",
    "monitoring.serviceMonitor",
    "monitoring.prometheusRule",
    "monitoring.dashboards",
    "reverse.service",
    "service",
    "drain",
    "serviceAccount",
    "rbac",
    "admissionPolicy",
    "networkPolicy",
    "test",
  ]);
  const namesIn = (group: Readonly<Record<string, unknown>>, at: string): string[] =>
    Object.entries(group).flatMap(([field, value]) => {
      const name = `${at}${field}`;
      return own.has(name) && isGroup(value) ? namesIn(value, `${name}.`) : [name];
    });
  return namesIn(values, "");
}

function isGroup(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
