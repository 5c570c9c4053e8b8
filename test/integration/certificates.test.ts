import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { existsSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parse, stringify } from "yaml";
import type { CertificateSigningRequest, Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { images } from "../harness/pods.ts";
import { issueDated } from "../harness/dated-certificate.ts";

const token = "abcdef.0123456789abcdef";

/** A token with which a machine may ask for a node's certificate, which is then signed without anybody's help.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/ */
const bootstrapping = [
  {
    apiVersion: "v1",
    kind: "Secret",
    type: "bootstrap.kubernetes.io/token",
    metadata: { name: "bootstrap-token-abcdef", namespace: "kube-system" },
    stringData: {
      "token-id": token.slice(0, 6),
      "token-secret": token.slice(7),
      "usage-bootstrap-authentication": "true",
    },
  },
  binding("bootstrap", "system:node-bootstrapper", "system:bootstrappers"),
  binding("first", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"),
  {
    ...binding("client-ca", "extension-apiserver-authentication-reader", "system:nodes", "Role"),
    kind: "RoleBinding",
    metadata: { name: "test-client-ca", namespace: "kube-system" },
  },
  binding("renewed", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
];

function binding(name: string, role: string, group: string, kind = "ClusterRole") {
  return {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRoleBinding",
    metadata: { name: `test-${name}` },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind, name: role },
    subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "Group", name: group }],
  };
}

describe("certificates that the cluster issues", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let kubeconfig: string;
  let bootstrap: string;
  let certDir: string;

  const start = async (untilReady = true) => {
    agent = await startGraftlet(cluster, {
      kubeconfig,
      untilReady,
      // No clientCAFile: the API server's CA is the one that it publishes.
      config: { rotateCertificates: true, serverTLSBootstrap: true, authentication: {} },
      args: [`--bootstrap-kubeconfig=${bootstrap}`, `--cert-dir=${certDir}`],
    });
  };
  const allRequests = async () =>
    (JSON.parse(await cluster.mustKubectl(["get", "csr", "--output=json"])) as { items: CertificateSigningRequest[] })
      .items;
  const requests = async (signer: string) =>
    (await allRequests()).filter(({ spec }) => spec.signerName === `kubernetes.io/${signer}`);
  const phase = async () => (await cluster.get<Pod>("pod", "talker"))?.status?.phase;
  const logsCome = async () => {
    let refusal = "";
    const come = async () => {
      const { code, stderr } = await cluster.kubectl(["logs", "--tail=1", "talker"]);
      refusal = stderr;
      return code === 0;
    };
    await cluster.waitFor("logs", come, { explain: () => refusal });
  };
  /** What the kubelet API shows who connects, once it shows something. */
  const peer = () =>
    cluster.waitFor("a certificate of the kubelet API", async () => {
      const asked = ["openssl", "s_client", "-connect", `${cluster.agentAddress}:10250`];
      const { stdout } = await cluster.runInside(asked, { stdin: "" });
      return stdout.includes("BEGIN CERTIFICATE") && new X509Certificate(stdout);
    });
  /** A serving pair in the place of the present one that is to be renewed in 5 to 25 seconds. */
  const agedPair = async () => {
    const now = Date.now();
    const pair = await issueDated(certificatesIn(cluster.layout.pki).ca, {
      subject: `O=system:nodes, CN=system:node:${cluster.nodeName}`,
      names: [cluster.nodeName, cluster.agentAddress],
      notBefore: new Date(now - 65_000),
      notAfter: new Date(now + 35_000),
    });
    const current = join(certDir, "kubelet-server-current.pem");
    writeFileSync(join(certDir, readlinkSync(current)), `${pair.certificate}${pair.key}`);
  };
  /** The pem of that name, through its link. */
  const pem = (name: string) => readFileSync(join(certDir, `${name}-current.pem`), "utf8");
  const certificate = (name: string) => new X509Certificate(pem(name));

  before(async () => {
    cluster = await startCluster({ name: "certificates" });
    kubeconfig = join(cluster.layout.dir, "node.kubeconfig");
    bootstrap = join(cluster.layout.dir, "bootstrap.kubeconfig");
    certDir = join(cluster.layout.dir, "node-pki");
    const admin = parse(readFileSync(cluster.adminKubeconfig, "utf8")) as { users: [{ user: object }] };
    admin.users[0].user = { token };
    writeFileSync(bootstrap, stringify(admin));
    await cluster.apply(bootstrapping);
    await start();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("exchanges a bootstrap kubeconfig for the node's own certificate, and stores and uses this certificate", async () => {
    const [request, ...others] = await requests("kube-apiserver-client-kubelet");
    assert.deepEqual(others, []);
    assert.match(request?.metadata.name ?? "", /^node-csr-/);
    assert.equal(request?.spec.username, `system:bootstrap:${token.slice(0, 6)}`);
    assert.equal(certificate("kubelet-client").subject, `O=system:nodes\nCN=system:node:${cluster.nodeName}`);
    const written = parse(readFileSync(kubeconfig, "utf8")) as { users: [{ user: Record<string, string> }] };
    assert.equal(written.users[0].user["client-certificate"], join(certDir, "kubelet-client-current.pem"));
    assert.ok(!readFileSync(kubeconfig, "utf8").includes(token));
    const node = await cluster.get<Node>("node", cluster.nodeName);
    assert.ok(node);
  });

  test("reports that the serving certificate awaits approval, and how to approve it", async () => {
    const waiting = await cluster.waitFor(
      "the request",
      async () => (await requests("kubelet-serving"))[0]?.metadata.name,
    );
    await cluster.waitFor("graftlet to say so", () => agent.log().includes(`kubectl certificate approve ${waiting}`));
    await cluster.apply({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "talker" },
      spec: {
        nodeName: cluster.nodeName,
        terminationGracePeriodSeconds: 1,
        containers: [
          {
            name: "c",
            image: images.busybox,
            command: ["sh", "-c", "i=0; while sleep 0.2; do echo $((i=i+1)); done"],
          },
        ],
      },
    });
    await cluster.waitFor("the pod to run", async () => (await phase()) === "Running");
    const refused = await cluster.kubectl(["logs", "talker"]);
    assert.notEqual(refused.code, 0);
    await cluster.mustKubectl(["certificate", "approve", waiting]);
    await logsCome();
    const shown = await peer();
    assert.equal(shown.subject, `O=system:nodes\nCN=system:node:${cluster.nodeName}`);
    assert.ok(shown.checkIP(cluster.agentAddress) && shown.checkHost(cluster.nodeName));
  });

  test("requests no certificate after a restart", async () => {
    assert.equal(await agent.stop(), true);
    const before = (await allRequests()).length;
    await start();
    await logsCome();
    assert.equal((await allRequests()).length, before);
  });

  test("renews a certificate before it expires, without breaking a running stream", async () => {
    const old = await peer();
    assert.equal(await agent.stop(), true);
    await agedPair();
    await start();
    const aged = await peer();
    assert.notEqual(aged.serialNumber, old.serialNumber);
    const stream = cluster.startKubectl(["logs", "--follow", "--tail=1", "talker"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    stream.stdout?.on("data", (chunk: Buffer) => (said += chunk.toString()));
    const waiting = await cluster.waitFor(
      "a new request",
      async () => (await requests("kubelet-serving")).find(({ status }) => !status?.certificate)?.metadata.name,
      { timeoutMs: 60_000 },
    );
    await cluster.mustKubectl(["certificate", "approve", waiting]);
    await cluster.waitFor("the new certificate", async () => (await peer()).serialNumber !== aged.serialNumber);
    const length = said.length;
    await cluster.waitFor("the stream to go on", () => said.length > length + 10);
    const numbers = said.slice(0, said.lastIndexOf("\n")).split("\n").map(Number);
    for (const [index, number] of numbers.entries()) assert.equal(number, (numbers[0] ?? 0) + index);
    stream.kill("SIGKILL");
  });

  test("requests credentials again after they were lost", async () => {
    assert.equal(await agent.stop(), true);
    rmSync(kubeconfig);
    rmSync(join(certDir, "kubelet-client-current.pem"));
    await start();
    await cluster.waitFor("the kubeconfig", () => existsSync(kubeconfig));
    assert.equal((await requests("kube-apiserver-client-kubelet")).length, 2);
    await logsCome();
  });
});
