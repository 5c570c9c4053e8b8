import assert from "node:assert/strict";
import { newKey, signingRequest } from "../../../src/certificates/signing-request.ts";
import type { CertificateSigningRequest, Node } from "../../../src/objects.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { addresses } from "../../harness/namespaces.ts";
import { ask } from "./requests.ts";

/** Values of a release `fleet` whose nodes are those of GraftedNodes, beside one of the values. */
export const fleetValues = {
  crds: { enabled: false },
  nodes: [{ name: "single", ssh: { host: "192.0.2.7", existingSecret: "single-ssh" } }],
  fleet: { enabled: true, nodeNames: ["wide-*", "*.wide.example"] },
};

const kubelet = "kubernetes.io/kube-apiserver-client-kubelet";

/** Checks on a real API server what the account of release `fleet` may do for nodes that are named by patterns. No graftlet runs. */
export async function patternsBound(cluster: Cluster, namespace: string): Promise<void> {
  const account = `system:serviceaccount:${namespace}:fleet-graftlet`;
  const as = `--as=${account}`;
  let made = 0;
  const create = async (object: object, ...more: readonly string[]) =>
    (await cluster.kubectl(["create", "--filename=-", as, ...more], { stdin: JSON.stringify(object) })).stderr;
  const request = async (node: string, ...names: readonly string[]) =>
    signingRequest({ commonName: `system:node:${node}`, organization: "system:nodes", names }, await newKey());

  // Certificates of clients.
  const wish = async (node: string) =>
    create({
      apiVersion: "certificates.k8s.io/v1",
      kind: "CertificateSigningRequest",
      metadata: { name: `wide-${++made}` },
      spec: {
        signerName: kubelet,
        usages: ["digital signature", "client auth"],
        request: Buffer.from(await request(node)).toString("base64"),
      },
    });
  await cluster.waitFor("the policy", async () => /certificates for its own nodes/.test(await wish("other")));
  for (const node of ["wide-9", "wide-a.b-c", `wide-${"x".repeat(58)}`, "hall.wide.example", "single"])
    assert.equal(await wish(node), "", node);
  const strange = [
    "other",
    "wide",
    "xwide-9",
    "wide-A",
    "wide-9 ",
    "wide-9/x",
    "wide-9:x",
    "hall.widexexample",
    "single2",
  ];
  for (const node of [...strange, `wide-${"x".repeat(59)}`])
    assert.match(await wish(node), /certificates for its own nodes/, node);

  // Certificates of servers.
  const approve = async (node: string, ...names: readonly string[]) => {
    const name = `wide-${++made}`;
    await ask(cluster, { name, request: await request(node, ...names), as: node });
    const asked = await cluster.get<CertificateSigningRequest>("csr", name);
    const conditions = [{ type: "Approved", status: "True", reason: "Test", message: "" }];
    const path = `/apis/certificates.k8s.io/v1/certificatesigningrequests/${name}/approval`;
    const stdin = JSON.stringify({ ...asked, status: { conditions } });
    return (await cluster.kubectl(["replace", "--raw", path, "--filename=-", as], { stdin })).stderr;
  };
  const range = addresses.apiServerService.replace(/\d+$/, "");
  const service = `${range}77`;
  const ofServices = /an address of the cluster's Services|index out of bounds/;
  assert.equal(await approve("wide-9", "wide-9", service), "");
  assert.match(await approve("other", "other", service), /approve requests of its own nodes/);
  assert.match(await approve("wide-9", "wide-8", service), /for the node's name and/);
  assert.match(await approve("wide-9", "wide-9", "192.0.2.10"), ofServices);
  assert.match(await approve("wide-9", "wide-9", service, `${range}78`), ofServices);
  assert.match(await approve("wide-9", "wide-9", service, "2001:db8::1"), ofServices);
  assert.match(await approve("wide-9", "wide-9", addresses.apiServerService), /for the API server's address/);
  assert.match(await approve("single", "single", service), /the address of the node's Service/);

  // Nodes.
  const node = (name: string, providerID?: string) => ({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name },
    spec: { providerID },
  });
  const own = `graftlet://${namespace}/fleet/`;
  await cluster.apply([node("wide-1", `${own}wide-1`), node("wide-2"), node("other-1", `${own}other-1`)]);
  const record = "graftlet.dev/configured-taints";
  const press = { key: "dedicated", value: "press", effect: "NoExecute" };
  // Keeps the other taints. The cluster's controllers add and remove some at any time, as these Nodes have no kubelet.
  const taint = async (name: string, own: readonly object[], keys: string, more: object = {}): Promise<string> => {
    const { metadata, spec } = (await cluster.get<Node>("node", name)) ?? {};
    const others = spec?.taints?.filter(({ key }) => key !== press.key) ?? [];
    const body = {
      metadata: { annotations: { [record]: keys }, resourceVersion: metadata?.resourceVersion },
      spec: { taints: [...others, ...own], ...more },
    };
    const { stderr } = await cluster.kubectl([
      "patch",
      "node",
      name,
      "--type=merge",
      `--patch=${JSON.stringify(body)}`,
      as,
    ]);
    return /the object has been modified/.test(stderr) ? taint(name, own, keys, more) : stderr;
  };
  let said = "";
  await cluster.waitFor(
    "the cluster to have given its taints",
    async () => (said = await taint("wide-1", [press], "dedicated:NoExecute")) === "",
    { timeoutMs: 30_000, explain: async () => `${said}${JSON.stringify(await cluster.get("node", "wide-1"))}` },
  );
  assert.match(await taint("wide-1", [], "dedicated:NoExecute"), /or in the GraftedNode/);
  assert.equal(await taint("wide-1", [], ""), "");
  assert.match(await taint("wide-1", [press], ""), /taints that others have set/);
  assert.match(await taint("wide-1", [], "", { unschedulable: true }), /only change the taints of a Node/);
  assert.match(await taint("other-1", [press], "dedicated:NoExecute"), /only write Nodes of its release/);
  const remove = async (name: string) => (await cluster.kubectl(["delete", "node", name, "--wait=false", as])).stderr;
  assert.match(await remove("other-1"), /only write Nodes of its release/);
  assert.match(await remove("wide-2"), /whose spec\.providerID is that of release fleet/);
  const health = async (name: string) =>
    (await cluster.kubectl(["get", `--raw=/api/v1/nodes/${name}/proxy/healthz`, as])).stderr;
  assert.match(await health("wide-1"), /no preferred addresses found/);
  assert.match(await health("other-1"), /only reach its own nodes/);
  assert.equal(await remove("wide-1"), "");

  // What belongs to a GraftedNode.
  const machine = {
    apiVersion: "graftlet.dev/v1alpha1",
    kind: "GraftedNode",
    metadata: { name: "wide-1", namespace },
    spec: { ssh: { host: "192.0.2.7", secretRef: { name: "wide-1-ssh" } } },
  };
  await cluster.apply(machine);
  const uid = ["get", "graftednode", "wide-1", `--namespace=${namespace}`, "--output=jsonpath={.metadata.uid}"];
  const { apiVersion, kind } = machine;
  const ownerReferences = [{ apiVersion, kind, name: "wide-1", uid: await cluster.mustKubectl(uid) }];
  const patch = async (what: string, body: object, ...more: readonly string[]) => {
    const args = [...what.split(" "), `--namespace=${namespace}`, "--type=merge", `--patch=${JSON.stringify(body)}`];
    return (await cluster.kubectl(["patch", ...args, as, ...more])).stderr;
  };
  assert.equal(await patch("graftednode wide-1", { metadata: { finalizers: ["graftlet.dev/leave"] } }), "");
  for (const body of [
    { spec: { ssh: { port: 2222 } } },
    { metadata: { labels: { a: "b" } } },
    { metadata: { annotations: { "graftlet.dev/force-leave": "x" } } },
    { metadata: { finalizers: ["graftlet.dev/leave", "example.org/other"] } },
  ])
    assert.match(
      await patch("graftednode wide-1", body),
      /the status of a GraftedNode and its own finalizer/,
      JSON.stringify(body),
    );
  assert.equal(await patch("graftednode wide-1", { metadata: { finalizers: [] } }), "");

  // What shows a node of the values.
  const shown = (name: string, spec: object = {}, ssh: object = {}) => ({
    apiVersion,
    kind,
    metadata: { name, namespace, labels: { "graftlet.dev/static": "fleet" } },
    spec: { static: { release: "fleet", provider: "ssh" }, ssh: { host: "192.0.2.7", ...ssh }, ...spec },
  });
  const removeObject = async (name: string) =>
    (await cluster.kubectl(["delete", "graftednode", name, `--namespace=${namespace}`, as])).stderr;
  for (const object of [
    shown("wide-2"),
    shown("single", { static: null }),
    shown("single", { static: { release: "x" } }),
  ])
    assert.notEqual(await create(object), "", JSON.stringify(object));
  for (const object of [
    shown("single", {}, { secretRef: { name: "wide-1-ssh" } }),
    shown("single", {}, { proxyJump: [{ host: "192.0.2.8", secretRef: { name: "wide-1-ssh" } }] }),
    shown("single", { poolRef: { name: "edge" } }),
  ])
    assert.match(await create(object), /may not choose the Secrets/, JSON.stringify(object));
  assert.equal(await create(shown("single")), "");
  assert.equal(await patch("graftednode single", { spec: { ssh: { host: "192.0.2.9" } } }), "");
  const login = { secretRef: { name: "wide-1-ssh" } };
  assert.match(await patch("graftednode single", { spec: { ssh: login } }), /may not choose the Secrets/);
  assert.match(await removeObject("wide-1"), /the status of a GraftedNode and its own finalizer/);
  assert.equal(await removeObject("single"), "");

  const secret = (name: string, more: object, owned = true) => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name, namespace, ...(owned && { ownerReferences }), annotations: {} },
    ...more,
  });
  assert.equal(await create(secret("kept-wide-1", {})), "");
  assert.equal(await patch("secret kept-wide-1", { data: { "tls.crt": "eA==" } }), "");
  assert.match(await create(secret("stray", {}, false)), /of its GraftedNodes/);
  const token = { ...secret("token", { type: "kubernetes.io/service-account-token" }) };
  Object.assign(token.metadata, { annotations: { "kubernetes.io/service-account.name": "default" } });
  assert.match(await create(token), /may not write Secrets of type/);
  await cluster.apply(secret("wide-1-ssh", { data: { "ssh-privatekey": "eA==" } }, false));
  assert.match(await patch("secret wide-1-ssh", { data: { "ssh-privatekey": "eQ==" } }), /of its GraftedNodes/);
  assert.equal(await patch("secret wide-1-ssh", { metadata: { finalizers: ["graftlet.dev/in-use"] } }), "");
  assert.equal(await patch("secret wide-1-ssh", { metadata: { finalizers: [] } }), "");
  // Certificates of a node in the values. Helm creates the Secret.
  const certificates = "fleet-graftlet-certificates";
  assert.equal(await patch(`secret ${certificates}.single`, { data: { "single.pem": "eA==" } }), "");
  assert.match(await create(secret(`${certificates}.stray`, {}, false)), /of its GraftedNodes/);
  await cluster.apply(secret(`${certificates}-stray`, {}, false));
  assert.match(await patch(`secret ${certificates}-stray`, { data: { "a.pem": "eA==" } }), /of its GraftedNodes/);

  const toKubelet = (spec: object, owned = true) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: `tried-${++made}`, namespace, ...(owned && { ownerReferences }) },
    spec: { ports: [{ port: 10_250 }], ...spec },
  });
  assert.equal(await create(toKubelet({}), "--dry-run=server"), "");
  assert.match(await create(toKubelet({}, false)), /of its GraftedNodes/);
  for (const spec of [{ externalIPs: ["192.0.2.10"] }, { selector: { a: "b" } }, { type: "NodePort" }])
    assert.match(await create(toKubelet(spec)), /only write Services of type ClusterIP/, JSON.stringify(spec));
  // As another release's Service, and one of the values.
  assert.match(
    await patch("service fleet-graftlet-kubelet-single", { spec: { selector: null } }),
    /of its GraftedNodes/,
  );
}
