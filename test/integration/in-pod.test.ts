import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import type { CertificateSigningRequest, Node, Pod, Secret, Service } from "../../src/objects.ts";
import { type Agent, kubeletConfiguration, startGraftletWith } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { addresses } from "../harness/namespaces.ts";
import { images } from "../harness/pods.ts";

const namespace = "edge";
const rbac = "rbac.authorization.k8s.io";
const account = { kind: "ServiceAccount", name: "graftlet", namespace };
const mounted = "/var/run/secrets/kubernetes.io/serviceaccount";

/** A Service that leads to the node's kubelet API. */
function serviceOf(name: string, port: number): readonly object[] {
  const slice = { name, namespace, labels: { "kubernetes.io/service-name": name } };
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace },
      spec: { ports: [{ name: "node-1", port, targetPort: 10_250 }] },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: slice,
      addressType: "IPv4",
      ports: [{ name: "node-1", port: 10_250 }],
      endpoints: [{ addresses: [addresses.node] }],
    },
  ];
}

/** What the account of a Pod that runs graftlet may do, no more. */
const granted = [
  { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
  { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "graftlet", namespace } },
  { apiVersion: "v1", kind: "Secret", metadata: { name: "certificates", namespace } },
  ...serviceOf("kubelet", 10_250),
  {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRole",
    metadata: { name: "graftlet" },
    rules: [
      {
        apiGroups: ["certificates.k8s.io"],
        resources: ["certificatesigningrequests"],
        verbs: ["create", "get", "list", "watch"],
      },
      {
        apiGroups: ["certificates.k8s.io"],
        resources: ["certificatesigningrequests/nodeclient"],
        verbs: ["create"],
      },
      { apiGroups: [""], resources: ["nodes/proxy"], resourceNames: ["node-1"], verbs: ["get"] },
    ],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "Role",
    metadata: { name: "graftlet", namespace },
    rules: [
      { apiGroups: [""], resources: ["secrets"], resourceNames: ["certificates"], verbs: ["get", "patch"] },
      { apiGroups: [""], resources: ["services"], resourceNames: ["kubelet", "kubelet-1"], verbs: ["get"] },
    ],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRoleBinding",
    metadata: { name: "graftlet" },
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "graftlet" },
    subjects: [account],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "RoleBinding",
    metadata: { name: "graftlet", namespace },
    roleRef: { apiGroup: rbac, kind: "Role", name: "graftlet" },
    subjects: [account],
  },
];

/** Rights that the account needs for the node's certificate to be approved without anybody. */
const mayApprove = [
  {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRole",
    metadata: { name: "graftlet-approves" },
    rules: [
      { apiGroups: ["certificates.k8s.io"], resources: ["certificatesigningrequests/approval"], verbs: ["update"] },
      {
        apiGroups: ["certificates.k8s.io"],
        resources: ["signers"],
        resourceNames: ["kubernetes.io/kubelet-serving"],
        verbs: ["approve"],
      },
    ],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRoleBinding",
    metadata: { name: "graftlet-approves" },
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "graftlet-approves" },
    subjects: [account],
  },
];

describe("graftlet in a Pod with a service account, a Service for the kubelet API and no kubeconfig", {
  timeout: 600_000,
}, () => {
  let cluster: Cluster;
  let agent: Agent;
  let file: string;
  let certDir: string;

  /** @param kubeletService of the node. */
  const configure = (kubeletService: string) => {
    const { apiVersion: _version, kind: _kind, ...kubelet } = kubeletConfiguration(cluster);
    const configuration = { ...kubelet, serverTLSBootstrap: true };
    const labels = { site: "north" };
    writeFileSync(
      file,
      stringify({
        apiVersion: "graftlet.dev/v1alpha1",
        kind: "GraftletConfiguration",
        certificateSecret: "certificates",
        kubeletAddress: "service",
        approveServingCertificates: true,
        nodes: [{ name: "node-1", kubeletService, kubeletConfiguration: configuration, labels }],
      }),
    );
  };
  const start = async () => {
    const args = [`--nodes=${file}`, `--cert-dir=${certDir}`, `--root-dir=${cluster.layout.kubeletRoot}`];
    const env = { KUBERNETES_SERVICE_HOST: addresses.node, KUBERNETES_SERVICE_PORT: "6443" };
    agent = await startGraftletWith(cluster, "in-pod", args, env);
  };
  const node = () => cluster.get<Node>("node", "node-1");
  const untilReady = () =>
    cluster.waitFor(
      "the node to be Ready",
      async () => (await node())?.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True"),
      { timeoutMs: 60_000, explain: () => agent.log() },
    );
  const requests = async () =>
    (JSON.parse(await cluster.mustKubectl(["get", "csr", "--output=json"])) as { items: CertificateSigningRequest[] })
      .items;
  const logs = () => cluster.kubectl(["logs", "talker"]);
  const reachable = async () =>
    (await node())?.status?.conditions?.find(({ type: known }) => known === "KubeletReachable");

  before(async () => {
    cluster = await startCluster({ name: "in-pod", provider: "cri" });
    const { layout } = cluster;
    certDir = join(layout.dir, "pod-pki");
    file = join(layout.dir, "nodes.yaml");
    await cluster.apply(granted);
    const token = await cluster.mustKubectl(["create", "token", "graftlet", "--namespace", namespace]);
    const ca = readFileSync(certificatesIn(layout.pki).ca.cert, "utf8");
    for (const [name, content] of Object.entries({ token, namespace, "ca.crt": ca }))
      await cluster.runInside(["sh", "-c", `mkdir -p ${mounted} && cat > ${mounted}/${name}`], { stdin: content });
    configure("kubelet");
    await start();
    await untilReady();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("requests the node's certificate as the account, and works with the node's identity", async () => {
    const client = (await requests()).find(({ spec }) => spec.signerName.endsWith("client-kubelet"));
    assert.ok(client);
    assert.equal(client.spec.username, `system:serviceaccount:${namespace}:graftlet`);
    const secret = await cluster.get<Secret>("secret", "certificates", namespace);
    const pem = Buffer.from(secret?.data?.["node-1.kubelet-client.pem"] ?? "", "base64").toString();
    assert.equal(new X509Certificate(pem).subject, "O=system:nodes\nCN=system:node:node-1");
    const mayWrite = await cluster.kubectl(["auth", "can-i", "update", "nodes/status", `--as=${client.spec.username}`]);
    assert.equal(mayWrite.stdout, "no\n");
  });

  test("serves the kubelet API through the Service, and gives pods the machine's own address", async () => {
    const service = await cluster.get<Service>("service", "kubelet", namespace);
    const internal = (await node())?.status?.addresses?.find(({ type }) => type === "InternalIP")?.address;
    assert.equal(internal, service?.spec?.clusterIP);
    await cluster.apply({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "talker" },
      spec: {
        nodeName: "node-1",
        containers: [{ name: "c", image: images.busybox, command: ["sh", "-c", "echo hello; sleep inf"] }],
      },
    });
    const waiting = await cluster.waitFor("the request", async () =>
      (await requests()).find(({ spec }) => spec.signerName.endsWith("kubelet-serving")),
    );
    const why = await cluster.waitFor("the condition", reachable);
    assert.equal(why.reason, "CertificateNotApproved");
    assert.match(why.message ?? "", new RegExp(`kubectl certificate approve ${waiting.metadata.name}$`));
    assert.match(agent.log(), /cannot approve certificate request; retrying/);
    await cluster.apply(mayApprove);
    const { status } = await cluster.waitFor("the approval", async () => {
      const now = (await requests()).find(({ metadata }) => metadata.name === waiting.metadata.name);
      return now?.status?.certificate ? now : undefined;
    });
    assert.equal(status?.conditions?.[0]?.reason, "GraftletApprove");
    await cluster.waitFor("logs", async () => (await logs()).stdout === "hello\n");
    assert.equal((await cluster.get<Pod>("pod", "talker"))?.status?.hostIP, addresses.node);
    await cluster.waitFor("the way to be found open", async () => (await reachable())?.status === "True");
  });

  test("reads secrets of its node's pods only, with its certificate", async () => {
    const { layout, tools } = cluster;
    const opaque = (name: string) => ({ apiVersion: "v1", kind: "Secret", metadata: { name }, data: { key: "djE=" } });
    const reader = (name: string, nodeName: string) => ({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name },
      spec: {
        nodeName,
        containers: [
          { name: "c", image: images.busybox, command: ["sleep", "inf"], envFrom: [{ secretRef: { name } }] },
        ],
      },
    });
    const objects = [opaque("mine"), opaque("theirs"), reader("mine", "node-1"), reader("theirs", "node-2")];
    await cluster.apply(objects);
    const kept = await cluster.get<Secret>("secret", "certificates", namespace);
    const pem = join(layout.dir, "node-1.pem");
    writeFileSync(pem, Buffer.from(kept?.data?.["node-1.kubelet-client.pem"] ?? "", "base64"), { mode: 0o600 });
    const read = (secret: string, of = "default") =>
      cluster.runInside([
        tools.path("kubectl"),
        "--kubeconfig=/dev/null",
        `--cache-dir=${join(layout.dir, "node-1-cache")}`,
        `--server=https://${addresses.node}:${addresses.apiServerPort}`,
        `--certificate-authority=${certificatesIn(layout.pki).ca.cert}`,
        `--client-certificate=${pem}`,
        `--client-key=${pem}`,
        `--namespace=${of}`,
        "get",
        "secret",
        secret,
        "--output=jsonpath={.data.key}",
      ]);
    // The authorizer hears of a new pod after its node does.
    await cluster.waitFor("the node's own secret", async () => (await read("mine")).stdout === "djE=", {
      explain: async () => (await read("mine")).stderr,
    });
    for (const [secret, of] of [
      ["theirs", "default"],
      ["certificates", namespace],
    ] as const)
      assert.match((await read(secret, of)).stderr, /^Error from server \(Forbidden\): .* no relationship found/);
  });

  test("a new Pod with only the Secret continues with the same certificates", async () => {
    const before = (await requests()).length;
    const uid = (await node())?.metadata.uid;
    assert.equal(await agent.stop(), true);
    rmSync(certDir, { recursive: true });
    mkdirSync(certDir);
    await start();
    await cluster.waitFor("logs", async () => (await logs()).stdout === "hello\n");
    assert.equal((await requests()).length, before);
    assert.equal((await node())?.metadata.uid, uid);
    assert.equal((await cluster.get<Pod>("pod", "talker"))?.status?.containerStatuses?.[0]?.restartCount, 0);
  });

  test("uses a newly configured Service from the next start, without disturbing its pods", async () => {
    const shared = await cluster.get<Service>("service", "kubelet", namespace);
    const port = 11_250;
    await cluster.apply(serviceOf("kubelet-1", port));
    const { containerID } = (await cluster.get<Pod>("pod", "talker"))?.status?.containerStatuses?.[0] ?? {};
    assert.equal(await agent.stop(), true);
    configure("kubelet-1");
    await start();
    const own = await cluster.get<Service>("service", "kubelet-1", namespace);
    const { status } = await cluster.waitFor("the Node's new address", async () => {
      const now = await node();
      return now?.status?.addresses?.some(({ address }) => address === own?.spec?.clusterIP) ? now : undefined;
    });
    assert.equal(status?.daemonEndpoints?.kubeletEndpoint?.Port, port);
    assert.equal(
      status?.addresses?.some(({ address }) => address === shared?.spec?.clusterIP),
      false,
    );
    await cluster.waitFor("logs", async () => (await logs()).stdout === "hello\n");
    const [talker] = (await cluster.get<Pod>("pod", "talker"))?.status?.containerStatuses ?? [];
    assert.equal(talker?.containerID, containerID);
    const serving = (await requests()).filter(({ spec }) => spec.signerName.endsWith("kubelet-serving"));
    assert.equal(serving.length, 2);
    assert.ok(serving.every(({ status: now }) => now?.certificate));
  });
});
