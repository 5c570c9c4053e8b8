import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import { newKey, signingRequest } from "../../src/certificates/signing-request.ts";
import type { CertificateSigningRequest, Service } from "../../src/objects.ts";
import { objectsIn } from "../harness/chart.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { chart, findHelm, type Helm, helmOf } from "../harness/helm.ts";
import {
  alternativeNames,
  commonName,
  organization,
  organizationalUnit,
  pemOf,
  type RequestVariant,
  requestDer,
  utf8,
} from "../harness/request-variants.ts";
import { askingPodsCount } from "./helm/asking.ts";
import { fleetValues, patternsBound } from "./helm/fleet.ts";
import { ask as askAs, type Asked } from "./helm/requests.ts";
import { taintsAreKept } from "./helm/taints.ts";
import { nodeRestrictionHolds } from "./helm/written.ts";

const namespace = "edge";
const asNode = "kubernetes.io/kube-apiserver-client-kubelet";
const serving = "kubernetes.io/kubelet-serving";
const account = `system:serviceaccount:${namespace}:edge-graftlet`;

const ssh = { host: "192.0.2.7", existingSecret: "edge-ssh" };
/** So many that a policy which looks at each for too long would be stopped by the API server. */
const many = Array.from({ length: 100 }, (_, index) => ({ name: `many-${index}-${"y".repeat(50)}`, ssh }));
const values = {
  nodes: [
    { name: "edge-1", ssh },
    { name: "edge-2.press", ssh, identity: "serviceAccount" },
    ...many,
    { name: `long-${"x".repeat(58)}`, ssh },
  ],
  onUninstall: "drain",
  rbac: { allNamespaces: true },
  networkPolicy: { create: true, apiServer: ["192.0.2.10/32", "2001:db8::10/128"], from: [{ podSelector: {} }] },
};

/** Another, whose nodes are reached at its Pod. The definitions are the first one's. */
const far = {
  crds: { enabled: false },
  nodes: [{ name: "far-1", ssh: { ...ssh, network: "tunneled" } }],
  kubeletAddress: "podIP",
  publishServices: { enabled: true },
};

const nodes = [{ oid: organization, value: "system:nodes" }];
const named = (name: string) => [{ oid: commonName, value: `system:node:${name}` }];
const own = named("edge-1");

describe("the admission policies of the chart, on a real API server", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let helm: Helm;
  let made = 0;

  /** Asks for a certificate. @returns what the API server said: empty when it took the request. */
  const ask = async (pem: string, { signerName = asNode, as = account } = {}): Promise<string> => {
    const usage = signerName === serving ? "server auth" : "client auth";
    const request = {
      apiVersion: "certificates.k8s.io/v1",
      kind: "CertificateSigningRequest",
      metadata: { name: `try-${++made}` },
      spec: { signerName, usages: ["digital signature", usage], request: Buffer.from(pem).toString("base64") },
    };
    const args = ["create", "--filename=-", ...(as === "" ? [] : [`--as=${as}`])];
    const { code, stderr } = await cluster.kubectl(args, { stdin: JSON.stringify(request) });
    const there = await cluster.get<CertificateSigningRequest>("csr", `try-${made}`);
    assert.equal(code === 0, there !== undefined);
    return stderr;
  };
  const issued = async () => {
    const request = await cluster.waitFor("the certificate", async () => {
      const now = await cluster.get<CertificateSigningRequest>("csr", `try-${made}`);
      return now?.status?.certificate ? now : undefined;
    });
    return new X509Certificate(Buffer.from(request.status?.certificate ?? "", "base64")).subject;
  };
  const as = (user: string, ...args: readonly string[]) => cluster.kubectl([...args, `--as=${user}`]);
  const pod = (name: string, nodeName: string) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace },
    spec: { nodeName, containers: [{ name: "c", image: "example/c" }] },
  });

  before(async () => {
    cluster = await startCluster({ name: "helm-admission", provider: "cri" });
    helm = helmOf(cluster, await findHelm());
    const file = join(cluster.layout.dir, "values.yaml");
    writeFileSync(file, stringify(values));
    await helm.mustHelm(["install", "edge", chart, "--namespace", namespace, "--create-namespace", "--values", file]);
    writeFileSync(file, stringify(far));
    await helm.mustHelm(["install", "far", chart, "--namespace", namespace, "--values", file]);
    writeFileSync(file, stringify(fleetValues));
    await helm.mustHelm(["install", "fleet", chart, "--namespace", namespace, "--values", file]);
    // A policy takes a moment to be known to the API server.
    const pem = pemOf(requestDer([nodes, named("stranger")]));
    await cluster.waitFor("the policy", async () => /ValidatingAdmissionPolicy/.test(await ask(pem)));
  });
  after(() => cluster?.[Symbol.asyncDispose]());

  test("admission policies produce no type-checking warnings", async () => {
    const { items } = JSON.parse(
      await cluster.mustKubectl(["get", "validatingadmissionpolicies", "--output=json"]),
    ) as { items: { status?: { typeChecking?: { expressionWarnings?: unknown } } }[] };
    assert.ok(items.length > 6);
    for (const { status } of items) assert.equal(status?.typeChecking?.expressionWarnings, undefined);
  });

  test("admission policies allow and approve graftlet's own requests for its nodes", async () => {
    const key = await newKey();
    for (const name of ["edge-1", many[99]?.name ?? "", values.nodes.at(-1)?.name ?? ""]) {
      const subject = { commonName: `system:node:${name}`, organization: "system:nodes", names: [] };
      assert.equal(await ask(await signingRequest(subject, key)), "");
      assert.equal(await issued(), `O=system:nodes\nCN=system:node:${name}`);
    }
  });

  test("admission policies allow the same requests with other key types and PEM line lengths", async () => {
    assert.equal(await ask(pemOf(requestDer([nodes, own]))), "");
    assert.equal(await ask(pemOf(requestDer([nodes, own], { key: "rsa" }))), "");
    assert.equal(await ask(pemOf(requestDer([nodes, own]), 76)), "");
  });

  test("admission policies deny a request with another node's name or an inexact subject", async () => {
    const stranger = named("stranger");
    const unit = [{ oid: organizationalUnit, value: "x" }];
    const masters = [{ oid: organization, value: "system:masters" }];
    const subjects = {
      "another node": [nodes, stranger],
      "a name that begins alike": [nodes, named("edge-11")],
      "a name that ends alike": [nodes, named("edge-")],
      "another of the same length": [nodes, named("edge-3")],
      "the identity of a node that has none of its own": [nodes, named("edge-2.press")],
      "an administrator": [masters, own],
      "another order": [own, nodes],
      "a part more behind": [nodes, own, unit],
      "a part more before": [unit, nodes, own],
      "a second name": [nodes, own, stranger],
      "a second group": [nodes, masters, own],
      "two groups in one set": [[...nodes, ...masters], own],
      "no group": [own],
      "no name": [nodes],
      nothing: [],
      "another kind of text": [nodes, [{ ...own[0], oid: commonName, value: "system:node:edge-1", tag: utf8 }]],
      "a name of 128 bytes and more": [nodes, named("x".repeat(120))],
    };
    for (const [what, subject] of Object.entries(subjects))
      assert.match(await ask(pemOf(requestDer(subject))), /certificates for its own nodes/, what);
    for (const key of ["rsa", "ed25519"] as const)
      assert.match(await ask(pemOf(requestDer([nodes, stranger], { key }))), /certificates for its own nodes/, key);
  });

  test("admission policies deny a request that contains a second one", async () => {
    const good = requestDer([nodes, own]);
    const bad = requestDer([nodes, named("stranger")]);
    const broken = good.subarray(0, good.length - 9);
    const begin = "-----BEGIN CERTIFICATE REQUEST-----\n";
    const texts = {
      "a text before": `x\n${pemOf(bad)}`,
      "a text after": `${pemOf(good)}x\n`,
      "two blocks": pemOf(good) + pemOf(bad),
      "the other two": pemOf(bad) + pemOf(good),
      "a broken block first": pemOf(broken) + pemOf(bad),
      "a block that PEM passes over first": pemOf(good).replace("=\n-", "\n-").replace(/.\n-/, "\n-") + pemOf(bad),
      "a block that does not end": `${begin}${good.toString("base64")}\n${pemOf(bad)}`,
      headers: pemOf(bad).replace(begin, `${begin}Name: ${good.toString("base64")}\n\n`),
      "headers before the good": pemOf(good).replace(begin, `${begin}a: b\n\n`),
      "another type": pemOf(good).replaceAll("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
      "spaces before the lines": pemOf(bad).replaceAll("\n", "\n "),
      "a good beginning in a longer version": pemOf(
        requestDer([nodes, named("stranger")], { version: [...good.subarray(10, 60)] }),
      ),
      "more than any request": pemOf(Buffer.concat([good, Buffer.alloc(4096)])),
      nothing: begin,
    };
    for (const [what, text] of Object.entries(texts)) {
      const said = await ask(text);
      assert.match(said, /not a single PEM block|certificates for its own nodes|index out of bounds|is invalid/, what);
      assert.doesNotMatch(said, /^$/, what);
    }
    assert.match(await ask(texts["two blocks"]), /not a single PEM block/);
    assert.match(await ask(texts["a block that PEM passes over first"]), /not a single PEM block/);
  });

  test("admission policies deny another signer, and serving certificates for nodes with identity: certificate", async () => {
    const pem = pemOf(requestDer([nodes, own]));
    const client = { signerName: "kubernetes.io/kube-apiserver-client" };
    assert.match(await ask(pem, client), /may only request certificates from the signers/);
    assert.match(await ask(pem, { signerName: "example.com/own" }), /may only request certificates from the signers/);
    assert.match(await ask(pem, { signerName: serving }), /certificates for its own nodes/);
    assert.equal(await ask(pemOf(requestDer([nodes, named("edge-2.press")])), { signerName: serving }), "");
  });

  test("admission policies ignore other users", async () => {
    const pem = pemOf(requestDer([nodes, named("stranger")]));
    assert.equal(await ask(pem, { as: "" }), "");
    await cluster.mustKubectl(["create", "serviceaccount", "other", "--namespace", namespace]);
    const other = `system:serviceaccount:${namespace}:other`;
    const role = ["--clusterrole=system:node-bootstrapper", `--serviceaccount=${namespace}:other`];
    await cluster.mustKubectl(["create", "clusterrolebinding", "other", ...role]);
    assert.equal(await ask(pem, { as: other }), "");
  });

  const subjectOf = (node: string, names: readonly string[]) => ({
    commonName: `system:node:${node}`,
    organization: "system:nodes",
    names,
  });
  const wish = async (node: string, ...names: readonly string[]) =>
    signingRequest(subjectOf(node, names), await newKey());
  /** Has a request made, and the account of a release approve it. @returns what the API server said of that. */
  const approve = async (asked: Omit<Asked, "name">, { by = account, type = "Approved" } = {}): Promise<string> => {
    const name = `approved-${++made}`;
    await askAs(cluster, { name, ...asked });
    const request = await cluster.get<CertificateSigningRequest>("csr", name);
    const conditions = [{ type, status: "True", reason: "Test", message: "" }];
    const path = `/apis/certificates.k8s.io/v1/certificatesigningrequests/${name}/approval`;
    const stdin = JSON.stringify({ ...request, status: { conditions } });
    return (await cluster.kubectl(["replace", "--raw", path, "--filename=-", `--as=${by}`], { stdin })).stderr;
  };
  /** Address of a node's Service. */
  const addressOf = async (node: string): Promise<string> => {
    const text = await cluster.mustKubectl(["get", "service", "--namespace", namespace, "--output=json"]);
    const { items } = JSON.parse(text) as { items: Service[] };
    const own = items.find(({ metadata }) => metadata.annotations?.["graftlet.dev/node"] === node);
    return own?.spec?.clusterIP ?? "";
  };

  test("admission policies let the account approve serving certificates of its nodes with their names and Service addresses", async () => {
    for (const name of ["edge-1", many[99]?.name ?? "", values.nodes.at(-1)?.name ?? ""]) {
      const request = await wish(name, name, await addressOf(name));
      await cluster.waitFor(
        "the policy to know the Service",
        async () => (await approve({ request, as: name })) === "",
      );
      const { items } = JSON.parse(await cluster.mustKubectl(["get", "csr", "--output=json"])) as {
        items: CertificateSigningRequest[];
      };
      const approved = items.find(({ metadata }) => metadata.name === `approved-${made}`);
      assert.equal(approved?.status?.conditions?.[0]?.type, "Approved");
    }
    const usages = ["key encipherment", "server auth", "digital signature"];
    const request = await wish("edge-1", "edge-1", await addressOf("edge-1"));
    assert.equal(await approve({ request, as: "edge-1", usages }), "");
  });

  test("admission policies deny every other approval by the account, and none by other users", async () => {
    const address = await addressOf("edge-1");
    const elsewhere = await addressOf("edge-2.press");
    const request = await wish("edge-1", "edge-1", address);
    const of = (...names: readonly string[]) => wish("edge-1", ...names);
    const as = "edge-1";
    const usual = ["digital signature", "server auth"];
    const dns = (name: string) => [0x82, name] as const;
    const numbers = [0x87, address.split(".").map(Number)] as const;
    const byHand = (variant: RequestVariant, subject = [nodes, own]) => pemOf(requestDer(subject, variant));
    const named = { oid: alternativeNames, names: [dns("edge-1"), numbers] };
    // Two policies look at a request, and either may be the one that says so.
    const form = /in the form that graftlet writes|for the node's name and the address|index out of bounds/;
    const block = /not a single PEM block|for the node's name and the address|index out of bounds/;
    const name = /for the node's name and the address of the node's Service/;
    const asking = /approve requests of its own nodes/;
    const refused: readonly (readonly [string, Omit<Asked, "name">, RegExp])[] = [
      ["a node of another's", { request: await wish("stranger", "stranger", address), as: "stranger" }, asking],
      ["another's request for its node", { request }, asking],
      [
        "a node that speaks as the account",
        { request: await wish("edge-2.press", address), as: "edge-2.press" },
        asking,
      ],
      ["who is no node but has the name of one", { request, as, group: "system:masters" }, asking],
      ["the API server's address", { request: await of("edge-1", "10.96.0.1"), as }, name],
      ["one address more", { request: await of("edge-1", address, "10.96.0.1"), as }, name],
      ["another node's Service", { request: await of("edge-1", elsewhere), as }, name],
      ["one name more", { request: await of("edge-1", "kubernetes", address), as }, name],
      ["another name", { request: await of("kubernetes.default.svc", address), as }, name],
      ["no name", { request: byHand({}), as }, form],
      ["clients", { request, as, usages: [...usual, "client auth"] }, /only approve server certificates/],
      [
        "no server",
        { request, as, usages: ["digital signature", "key encipherment"] },
        /only approve server certificates/,
      ],
      [
        "another extension",
        { request: byHand({ extensions: [[named, { oid: [0x55, 0x1d, 0x13], names: [] }]] }), as },
        form,
      ],
      ["another kind of key", { request: byHand({ extensions: [[named]], key: "rsa" }), as }, form],
      ["two blocks", { request: request + request, as }, block],
      [
        "another signer",
        { request: byHand({}), as, signerName: asNode, usages: ["digital signature", "client auth"] },
        /signer|for the node's name and the address|index out of bounds/,
      ],
    ];
    for (const [what, asked, sentence] of refused) assert.match(await approve(asked), sentence, what);
    assert.equal(await approve({ request: byHand({ extensions: [[named]] }), as }), "");
    const stranger = { request: await wish("stranger", "stranger", address), as: "stranger" };
    assert.match(await approve(stranger, { type: "Denied" }), asking);
  });

  test("admission policies allow only the requesting Pod's addresses for nodes that are reached and published at the Pod", () =>
    askingPodsCount(cluster, namespace));

  test("identity: serviceAccount writes only its own Node, Lease and pods", async () => {
    const node = (name: string) => JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name } });
    const lease = (name: string) =>
      JSON.stringify({
        apiVersion: "coordination.k8s.io/v1",
        kind: "Lease",
        metadata: { name, namespace: "kube-node-lease" },
        spec: {},
      });
    for (const object of [node, lease]) {
      const create = (name: string) =>
        cluster.kubectl(["create", "--filename=-", `--as=${account}`], { stdin: object(name) });
      assert.match((await create("stranger")).stderr, /Node and Lease of its own nodes/);
      assert.match((await create("edge-1")).stderr, /Node and Lease of its own nodes/);
      assert.equal((await create("edge-2.press")).stderr, "");
    }
    await cluster.mustKubectl(["create", "--filename=-"], { stdin: node("stranger") });
    await cluster.apply([pod("mine", "edge-2.press"), pod("theirs", "stranger")]);
    // kubectl looks before it patches.
    await cluster.mustKubectl(["create", "clusterrole", "looks", "--verb=get", "--resource=pods/status"]);
    const looker = `--serviceaccount=${namespace}:edge-graftlet`;
    await cluster.mustKubectl(["create", "clusterrolebinding", "looks", "--clusterrole=looks", looker]);
    const status = (name: string) =>
      as(account, "patch", "pod", name, `-n=${namespace}`, "--subresource=status", '-p={"status":{"phase":"Running"}}');
    assert.equal((await status("mine")).stderr, "");
    assert.match((await status("theirs")).stderr, /only write pods of its own nodes/);
    const remove = (user: string, name: string) =>
      as(user, "delete", "pod", name, `-n=${namespace}`, "--grace-period=0", "--force");
    assert.match((await remove(account, "theirs")).stderr, /only write pods of its own nodes/);
    assert.doesNotMatch((await remove(account, "mine")).stderr, /forbidden/);
    assert.match((await as(account, "create", "token", "default")).stderr, /tokens that are bound to Pods/);
  });

  test("identity: serviceAccount may write the same parts of Nodes, claims and events as a node", () =>
    nodeRestrictionHolds(cluster, namespace));

  test("the account reaches /healthz of its nodes' kubelet API through the API server, but not exec", async () => {
    await cluster.mustKubectl(["create", "--filename=-"], {
      stdin: JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name: "edge-1" } }),
    });
    const get = (path: string, user = account) => as(user, "get", `--raw=/api/v1/nodes/edge-1/proxy${path}`);
    // The node has no address, so that whatever is let through fails for another reason.
    const past = /no preferred addresses found/;
    assert.match((await get("/healthz")).stderr, past);
    for (const path of ["", "/", "/healthz/", "/healthz/ping", "/pods", "/exec/edge/mine/c?command=id&path=/healthz"])
      assert.match((await get(path)).stderr, /only reach \/healthz of the kubelet API through the API server/, path);
    assert.match((await cluster.kubectl(["get", "--raw=/api/v1/nodes/edge-1/proxy/pods"])).stderr, past);
  });

  test("admission policies let the account change the taints of its release, and nothing else", () =>
    taintsAreKept(cluster, namespace));

  test("admission policies restrict a fleet's account to names that match its patterns", () =>
    patternsBound(cluster, namespace));

  test("admission policies let the drain account delete only pods of the release's nodes", async () => {
    const hooks = objectsIn(await helm.mustHelm(["get", "hooks", "edge", "--namespace", namespace]));
    await cluster.apply(hooks.filter(({ metadata, kind }) => metadata.name.endsWith("leave") && kind !== "Job"));
    await cluster.apply(pod("leaving", "edge-2.press"));
    const leaving = `system:serviceaccount:${namespace}:edge-graftlet-leave`;
    const remove = (name: string) => as(leaving, "delete", "pod", name, `-n=${namespace}`, "--wait=false");
    assert.match((await remove("theirs")).stderr, /only delete pods of its nodes/);
    assert.equal((await remove("leaving")).stderr, "");
  });

  test("admission policies are removed completely by uninstall", async () => {
    await helm.mustHelm(["uninstall", "edge", "--namespace", namespace, "--no-hooks"]);
    const names = await cluster.mustKubectl(["api-resources", "--verbs=list", "--output=name"]);
    const kinds = names.split("\n").filter((name) => name !== "" && !/^(events|componentstatuses)/.test(name));
    const left = await cluster.waitFor("the objects to be gone", async () => {
      const args = ["--all-namespaces", "--ignore-not-found", "--selector=app.kubernetes.io/instance=edge"];
      const { stdout } = await cluster.kubectl(["get", kinds.join(","), "--output=name", ...args]);
      const others = stdout
        .split("\n")
        .filter((name) => name !== "" && !name.endsWith("leave") && !name.startsWith("customresourcedefinition"));
      return others.length === 0 ? { others } : undefined;
    });
    assert.deepEqual(left.others, []);
  });
});
