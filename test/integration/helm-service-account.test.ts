import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { V1Pod } from "@kubernetes/client-node";
import { parse, stringify } from "yaml";
import type { CertificateSigningRequest, ConfigMap, Node, Pod } from "../../src/objects.ts";
import { type Agent, kubeletConfiguration, nodeReady, startGraftletWith } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { objectsIn, ofKind } from "../harness/chart.ts";
import { chart, findHelm, type Helm, helmOf } from "../harness/helm.ts";
import { addresses } from "../harness/namespaces.ts";
import { images } from "../harness/pods.ts";

const namespace = "edge";
const account = `system:serviceaccount:${namespace}:edge-graftlet`;
const apiServer = { KUBERNETES_SERVICE_HOST: addresses.node, KUBERNETES_SERVICE_PORT: "6443" };
const mounted = "/var/run/secrets/kubernetes.io/serviceaccount";

/** A pod that says what it was given, of all that a node has to read for it. */
const talker = (where: string) => [
  { apiVersion: "v1", kind: "Secret", metadata: { name: "given", namespace: where }, stringData: { word: "secret" } },
  { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "given", namespace: where }, data: { word: "config" } },
  {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "talker", namespace: where },
    spec: {
      nodeSelector: { "graftlet.dev/target": "node-1" },
      tolerations: [{ key: "graftlet.dev/target", operator: "Exists" }],
      terminationGracePeriodSeconds: 1,
      containers: [
        {
          name: "c",
          image: images.busybox,
          command: ["sh", "-c", `echo $WORD $(cat /given/word) $(cat ${mounted}/namespace); sleep inf`],
          env: [{ name: "WORD", valueFrom: { secretKeyRef: { name: "given", key: "word" } } }],
          volumeMounts: [{ name: "given", mountPath: "/given" }],
        },
      ],
      volumes: [{ name: "given", configMap: { name: "given" } }],
    },
  },
];

describe("identity: serviceAccount with only the chart's RBAC", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let helm: Helm;

  /** The release's own configuration, but for the machine, which is the cluster's own. */
  const configuration = async () => {
    const map = await cluster.get<ConfigMap>("configmap", "edge-graftlet", namespace);
    const rendered = parse(map?.data?.["nodes.yaml"] ?? "") as { nodes: Record<string, unknown>[] };
    const { apiVersion: _version, kind: _kind, ...kubelet } = kubeletConfiguration(cluster);
    const nodes = rendered.nodes.map(({ providerConfig: _over, kubeletConfiguration: given, ...node }) => ({
      ...node,
      provider: "cri",
      kubeletConfiguration: { ...kubelet, ...(given as object) },
    }));
    return { ...rendered, healthzBindAddress: "127.0.0.1", nodes };
  };

  before(async () => {
    cluster = await startCluster({ name: "helm-account", provider: "cri" });
    const { layout } = cluster;
    await cluster.mustKubectl(["create", "namespace", "other"]);
    const values = join(layout.dir, "values.yaml");
    // Where such a node is needed nobody may sign what the kubelet API shows either: by itself the chart asks for none.
    const kubelet = { serverTLSBootstrap: true };
    const ssh = { host: "192.0.2.7", existingSecret: "none" };
    const node = { name: "node-1", identity: "serviceAccount", ssh, kubeletConfiguration: kubelet };
    writeFileSync(
      values,
      stringify({ nodes: [node], kubeletAddress: "podIP", rbac: { namespaces: ["default", namespace] } }),
    );
    const install = ["install", "edge", chart, `--namespace=${namespace}`, "--create-namespace", `--values=${values}`];
    helm = helmOf(cluster, await findHelm());
    await helm.mustHelm(install);

    const token = await cluster.mustKubectl(["create", "token", "edge-graftlet", "--namespace", namespace]);
    const ca = readFileSync(certificatesIn(layout.pki).ca.cert, "utf8");
    for (const [name, content] of Object.entries({ token, namespace, "ca.crt": ca }))
      await cluster.runInside(["sh", "-c", `mkdir -p ${mounted} && cat > ${mounted}/${name}`], { stdin: content });
    const file = join(layout.dir, "nodes.yaml");
    writeFileSync(file, stringify(await configuration()));
    const certDir = join(layout.dir, "pod-pki");
    mkdirSync(certDir);
    const args = [`--nodes=${file}`, `--cert-dir=${certDir}`, `--root-dir=${layout.kubeletRoot}`];
    agent = await startGraftletWith(cluster, "helm-account", args, apiServer);
    await nodeReady(cluster, "node-1");
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  /** Runs what the Pod of `helm test` runs, with the account that it has there. */
  const helmTest = async () => {
    const hooks = objectsIn(await helm.mustHelm(["get", "hooks", "edge", "--namespace", namespace]));
    await cluster.apply(hooks.filter(({ metadata, kind }) => metadata.name.endsWith("test") && kind !== "Pod"));
    const [container] = ofKind<V1Pod>(hooks, "Pod")[0]?.spec?.containers ?? [];
    const token = await cluster.mustKubectl(["create", "token", "edge-graftlet-test", "--namespace", namespace]);
    const env = Object.fromEntries((container?.env ?? []).map(({ name, value }) => [name, value]));
    const script =
      'mount -t tmpfs tmpfs "$0"; printf %s "$TOKEN" > "$0/token"; printf %s "$CA" > "$0/ca.crt"; exec "$@"';
    const [, ...flags] = container?.command ?? [];
    const asPod = [mounted, process.execPath, ...flags, ...(container?.args ?? [])];
    return cluster.runInside(["unshare", "--mount", "sh", "-c", script, ...asPod], {
      env: { ...env, ...apiServer, TOKEN: token, CA: readFileSync(certificatesIn(cluster.layout.pki).ca.cert, "utf8") },
      timeoutMs: 180_000,
    });
  };

  test("helm test reports why a log cannot be read", async () => {
    await cluster.waitFor("the node to know that it has no certificate", async () => {
      const { conditions = [] } = (await cluster.get<Node>("node", "node-1"))?.status ?? {};
      return conditions.some(({ reason }) => reason === "CertificateNotApproved");
    });
    const { code, stdout, stderr } = await helmTest();
    assert.equal(code, 1, stderr);
    assert.match(stdout, /^node node-1: the pod ran, but reading its log returned 500 .*kubectl certificate approve /);
  });

  test("registers the node, and requests its serving certificate as the account", async () => {
    const node = await cluster.get<Node>("node", "node-1");
    assert.equal(node?.spec?.providerID, "graftlet://edge/edge/node-1");
    const request = await cluster.waitFor("the request", async () => {
      const { items } = JSON.parse(await cluster.mustKubectl(["get", "csr", "--output=json"])) as {
        items: CertificateSigningRequest[];
      };
      assert.ok(items.every(({ spec }) => spec.signerName === "kubernetes.io/kubelet-serving"));
      return items[0];
    });
    assert.equal(request.spec.username, account);
    await cluster.mustKubectl(["certificate", "approve", request.metadata.name]);
  });

  test("helm test reads the log once the certificate is served, and leaves no pod", async () => {
    const said = await cluster.waitFor("the certificate to be served", async () => {
      const { code, stdout } = await helmTest();
      return code === 0 ? stdout : undefined;
    });
    assert.equal(said, "node node-1: a pod ran there, and its log came back\n");
    await cluster.waitFor("the pod to be gone", async () => {
      const left = await cluster.mustKubectl(["get", "pods", `-n=${namespace}`, "--output=name"]);
      return !left.includes("test");
    });
  });

  test("serves pods of its namespaces with Secret, ConfigMap and token; logs, exec and deletion work", async () => {
    await cluster.apply(talker("default"));
    const logs = () => cluster.kubectl(["logs", "talker"]);
    await cluster.waitFor("logs", async () => (await logs()).stdout === "secret config default\n", {
      timeoutMs: 60_000,
      explain: async () => (await logs()).stderr + agent.log(),
    });
    assert.equal(await cluster.mustKubectl(["exec", "talker", "--", "echo", "done"]), "done\n");
    const events = await cluster.mustKubectl(["get", "events", "--output=jsonpath={.items[*].reason}"]);
    for (const reason of ["Started", "NodeReady"]) assert.match(events, new RegExp(reason));
    await cluster.mustKubectl(["delete", "pod", "talker", "--timeout=60s"]);
  });

  test("the API server denies the account nothing that graftlet needs", () => {
    assert.doesNotMatch(agent.log(), /forbidden|permission_denied/i);
  });

  test("cannot read Secrets in other namespaces, so a pod there keeps waiting", async () => {
    await cluster.apply(talker("other"));
    await cluster.waitFor("the pod to be seen", () => /permission_denied|forbidden/i.test(agent.log()));
    const pod = await cluster.get<Pod>("pod", "talker", "other");
    assert.equal(pod?.spec.nodeName, "node-1");
    assert.notEqual(pod?.status?.phase, "Running");
    for (const [what, where, may] of [
      ["get secrets", "default", "yes"],
      ["get secrets", "other", "no"],
      ["get secrets", "kube-system", "no"],
      ["create serviceaccounts/token", "other", "no"],
      ["delete pods", "other", "no"],
      ["update nodes/status", "other", "no"],
    ] as const) {
      const [verb = "", resource = ""] = what.split(" ");
      const { stdout } = await cluster.kubectl(["auth", "can-i", verb, resource, `-n=${where}`, `--as=${account}`]);
      assert.equal(stdout, `${may}\n`, `${what} in ${where}`);
    }
  });
});
