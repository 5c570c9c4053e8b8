import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { claim, persistentVolume } from "../harness/claims.ts";
import { stringify } from "yaml";
import { NodeServiceCapability_RPC_Type as Capability } from "../../src/gen/csi.ts";
import type { Node, Secret } from "../../src/objects.ts";
import { nodeReady } from "../harness/agent.ts";
import { deedsOf } from "../harness/audit.ts";
import { startTestDriver } from "../harness/csi-driver.ts";
import { createCgroup } from "../harness/cgroups.ts";
import { secondRuntimeHandler } from "../harness/containerd-config.ts";
import { cdiDirectory, draDriver, startDraDriver } from "../harness/dra-driver.ts";
import { apiServerUrl } from "../harness/control-plane.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { images } from "../harness/pods.ts";
import { must, run } from "../harness/processes.ts";
import { certificateSecret, inNamespace, type Release, releaseOf } from "./helm/release.ts";
import { type Right, rightsIn, unused } from "./helm/rights.ts";

/** A second node on the same machine, which speaks as the account. */
const accountNode = "edge-2";

describe("the RBAC rules of a release", { timeout: 1_800_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let rights: readonly Right[];

  before(async () => {
    lab = await startHelmLab("helm-rights", { audited: true, say: (line) => console.error(line) });
    edge = releaseOf(lab);
    const { ssh, kubeletConfiguration: machine, layout } = lab.edge;
    const cgroupRoot = `${layout.cgroup}/second`;
    createCgroup({ ...layout, cgroup: cgroupRoot });
    const featureGates = { ClusterTrustBundleProjection: true, PodCertificateRequest: true };
    const own = { ...machine, cgroupRoot, podLogsDir: join(layout.dir, "second-logs"), featureGates };
    const second = {
      name: accountNode,
      identity: "serviceAccount",
      rootDir: join(layout.dir, "second"),
      ssh: { ...ssh, existingSecret: release.secret, network: "isolated" },
      kubeletConfiguration: own,
    };
    const { port } = ssh;
    const first = { name: release.node, ssh: { port, network: "isolated" }, kubeletConfiguration: machine };
    writeFileSync(
      lab.values,
      stringify({ onUninstall: "drain", rbac: { namespaces: ["default", release.namespace] }, nodes: [first, second] }),
    );
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("RBAC rules are sufficient for two nodes, one with its own certificate and one that uses the account", async () => {
    await edge.install("--set=approveServingCertificates=false");
    await nodeReady(lab.cluster, accountNode);
    // Before its serving certificate is approved a node's logs cannot be read, and helm test says why.
    const untested = await lab.helm(["test", release.name, inNamespace, "--logs", "--timeout=120s"]);
    assert.match(untested.stdout + untested.stderr, /node edge-1: .*kubectl certificate approve/);
    await lab.mustHelm(["upgrade", ...lab.told, "--wait", "--timeout=120s"]);
    const manifests = await Promise.all(
      ["manifest", "hooks"].map((part) => lab.mustHelm(["get", part, release.name, inNamespace])),
    );
    rights = rightsIn(manifests.join("\n---\n"));
    assert.ok(rights.length > 20, `${rights.length} rights`);
    await edge.runWorkload();
    await edge.reachIn();
  });

  test("a node's certificate can read only the secrets of the node's own pods", async () => {
    await lab.cluster.apply([
      ...["own", "foreign"].map((name) => ({
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name },
        stringData: { key: name },
      })),
      user("reader", release.node, "own"),
      user("elsewhere", lab.cluster.nodeName, "foreign"),
    ]);
    await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/reader", "pod/elsewhere", "--timeout=55s"]);
    const asNode = await kubectlByCertificate(lab, release.node);
    assert.equal((await asNode(["get", "secret", "own", "--output=name"])).stdout, "secret/own\n");
    const refused = await asNode(["get", "secret", "foreign"]);
    assert.match(refused.stderr, /no relationship found between node 'edge-1' and this object/);
  });

  test("RBAC rules give the account no more rights than its nodes need", async () => {
    const account = `--as=system:serviceaccount:${release.namespace}:${release.name}-graftlet`;
    for (const asked of [
      ["get", "nodes/node-1"],
      ["get", "secrets", "--namespace=kube-system"],
      ["create", "pods"],
      ["delete", `node/${release.node}`],
    ])
      assert.equal((await lab.cluster.kubectl(["auth", "can-i", ...asked, account])).stdout, "no\n", asked.join(" "));
  });

  test("using and removing both nodes needs every RBAC rule of the chart", async () => {
    await lab.mustHelm(["test", release.name, inNamespace, "--timeout=120s"]);
    await lab.cluster.apply([
      runtimeClass,
      persistentVolume("account", { hostPath: { path: "/var/tmp" } }),
      claim("account", "account"),
    ]);
    await lab.cluster.mustKubectl(["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/account", "--timeout=55s"]);
    const asks = { runtimeClassName: runtimeClass.metadata.name, claimName: "account" };
    await lab.cluster.apply([user("of-account", accountNode, "own", asks)]);
    await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/of-account", "--timeout=55s"]);
    await lab.cluster.mustKubectl(["exec", "of-account", "--", "true"]);
    await lab.cluster.mustKubectl(["delete", "pod", "of-account", "--timeout=55s"]);
    await attachVolume(lab);
    await claimDevice(lab);
    await requestCertificate(lab);
    // The driver has gone, and with it what it offered.
    await lab.cluster.waitFor(
      "its ResourceSlices to be deleted",
      async () => (await lab.cluster.mustKubectl(["get", "resourceslices", "--output=name"])) === "",
      { timeoutMs: 90_000, explain: edge.log },
    );
    assert.equal(await askByToken(lab, await edge.node(accountNode)), "403");
    // So is a taint of the values, which the account writes for a node that may not.
    await lab.cluster.mustKubectl(["taint", "node", release.node, "graftlet.dev/target-"]);
    await lab.cluster.waitFor(
      "the node's taint",
      async () => (await edge.node())?.spec?.taints?.some(({ key }) => key === "graftlet.dev/target"),
      { explain: edge.log },
    );
    // So is the object of a node that is no longer in the values deleted by the next one.
    await leaveStaticObject(lab);
    // A label of the node's own is put right by the next graftlet.
    await lab.cluster.mustKubectl(["label", "node", accountNode, "kubernetes.io/arch-"]);
    await lab.cluster.mustKubectl(["rollout", "restart", `deployment/${release.name}-graftlet`, inNamespace]);
    await lab.cluster.waitFor(
      "the node's label",
      async () => (await edge.node(accountNode))?.metadata.labels?.["kubernetes.io/arch"],
      { explain: edge.log },
    );
    await lab.cluster.waitFor(
      "the object of a former node to be deleted",
      async () => !(await lab.cluster.mustKubectl(["get", "gn", inNamespace, "--output=name"])).includes("former"),
      { explain: edge.log },
    );
    // The cluster's approver asks by itself whether the account may have its request approved.
    const approved = (await edge.requests()).find(({ spec }) => spec.signerName.endsWith("client-kubelet"));
    assert.equal(approved?.status?.conditions?.[0]?.reason, "AutoApproved");
    await lab.mustHelm(["uninstall", release.name, inNamespace, "--timeout=240s"]);
    await edge.isGone();
    assert.equal(await edge.node(accountNode), undefined);
    const left = unused(rights, deedsOf(lab.cluster.layout));
    assert.deepEqual(
      left.filter((right) => !isElsewhere(right)),
      [],
    );
  });
});

/** Rights whose use is no deed of the account's, or a matter of timing. */
function isElsewhere({ account, verb, resource }: Right): boolean {
  // The controller that approves asks for it, in a review.
  if (resource === "certificatesigningrequests/nodeclient") return true;
  // Where a request is approved the API server asks for it.
  if (resource === "signers") return true;
  // The request may be approved before its watch begins.
  if (resource === "certificatesigningrequests" && verb === "watch") return true;
  // A server-side apply that creates an object is a patch.
  if (resource === "graftednodes" && verb === "create") return true;
  // Only where a Node is made anew before the cluster has collected what the old one owned.
  if (resource === "csinodes" && verb === "delete") return true;
  // Only where a pod was replaced by one of its name while its status was on its way.
  return account.endsWith("-graftlet") && resource === "pods" && verb === "get";
}

/** Creates an object as the release does for a node that is no longer in its values. */
async function leaveStaticObject({ cluster }: HelmLab): Promise<void> {
  const object = {
    apiVersion: "graftlet.dev/v1alpha1",
    kind: "GraftedNode",
    metadata: { name: "former", namespace: release.namespace, labels: { "graftlet.dev/static": release.name } },
    spec: { static: { release: release.name, provider: "ssh" }, ssh: {} },
  };
  const apply = ["apply", "--server-side", "--field-manager=graftlet-static", "--filename=-"];
  await cluster.mustKubectl(apply, { stdin: JSON.stringify(object) });
}

/** Has the account's node take in a storage driver, and give it a volume that the cluster attaches, and that has grown. */
async function attachVolume({ cluster, edge }: HelmLab): Promise<void> {
  const rootDir = join(edge.layout.dir, "second");
  const name = "rights.csi.graftlet.dev";
  const capabilities = [Capability.EXPAND_VOLUME];
  const run = async () => undefined;
  await using driver = await startTestDriver({ name, rootDir, disks: rootDir, run, capabilities });
  await cluster.waitFor("the node to take the driver in", () => driver.told.some((one) => one.pluginRegistered));
  await cluster.apply([
    persistentVolume("attached", { csi: { driver: name, volumeHandle: "h" } }),
    claim("attached", "attached"),
  ]);
  await cluster.mustKubectl(["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/attached", "--timeout=55s"]);
  const bigger = JSON.stringify({ spec: { capacity: { storage: "2Gi" } } });
  await cluster.mustKubectl(["patch", "pv", "attached", "--type=merge", `--patch=${bigger}`]);
  await cluster.apply([user("attaching", accountNode, "own", { claimName: "attached" })]);
  const attachment = await cluster.waitFor(
    "the volume's attachment",
    async () => (await cluster.mustKubectl(["get", "volumeattachments", "--output=name"])).trim() || undefined,
  );
  const patch = JSON.stringify({ status: { attached: true } });
  await cluster.mustKubectl(["patch", attachment, "--subresource=status", "--type=merge", `--patch=${patch}`]);
  await cluster.waitFor("the driver to be asked for it", () => driver.methods().includes("NodePublishVolume"));
  const size = "--for=jsonpath={.status.capacity.storage}=2Gi";
  await cluster.mustKubectl(["wait", size, "pvc/attached", "--timeout=55s"]);
  await cluster.mustKubectl(["delete", "pod", "attaching", "--timeout=55s"]);
}

/** Has the account's node run a pod with a device of a DRA driver. */
async function claimDevice({ cluster, edge: { layout } }: HelmLab): Promise<void> {
  const node = { nodeName: accountNode, rootDir: join(layout.dir, "second"), cdiDir: cdiDirectory(layout) };
  await using _driver = await startDraDriver(cluster, node);
  const pod = user("claiming", accountNode, "own", { deviceClaim: "device" });
  const requests = [{ name: "device", exactly: { deviceClassName: draDriver } }];
  const metadata = { name: "device" };
  const spec = { devices: { requests } };
  await cluster.apply([{ apiVersion: "resource.k8s.io/v1", kind: "ResourceClaim", metadata, spec }, pod]);
  await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/claiming", "--timeout=55s"]);
  await cluster.mustKubectl(["delete", "pod", "claiming", "--timeout=55s"]);
}

/** Has the account's node request a certificate for a pod that projects trust anchors, too. */
async function requestCertificate({ cluster }: HelmLab): Promise<void> {
  const sources = [
    { clusterTrustBundle: { name: "none", optional: true, path: "ca" } },
    { podCertificate: { signerName: "example.com/test", keyType: "ED25519", credentialBundlePath: "bundle" } },
  ];
  const pod = user("certified", accountNode, "own", { projected: { sources } });
  await cluster.apply([pod]);
  const requests = ["get", "podcertificaterequests", "--output=jsonpath={.items[*].spec.podName}"];
  await cluster.waitFor("the certificate's request", async () => (await cluster.mustKubectl(requests)) === "certified");
  await cluster.mustKubectl(["delete", "pod", "certified", "--timeout=55s"]);
}

/** Asks a node's kubelet API for its pods with a token that may not. @returns the status code. */
async function askByToken({ cluster }: HelmLab, node: Node | undefined): Promise<string> {
  const token = (await cluster.mustKubectl(["create", "token", "default"])).trim();
  const { addresses = [], daemonEndpoints } = node?.status ?? {};
  const address = addresses.find(({ type }) => type === "InternalIP")?.address;
  const asked = ["curl", "--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}"];
  const url = `https://${address}:${daemonEndpoints?.kubeletEndpoint?.Port}/pods`;
  return must(networkArgv(cluster.layout, [...asked, "--header", `Authorization: Bearer ${token}`, url]));
}

/** By which a pod asks for the second handler of the machine's runtime. */
const runtimeClass = {
  apiVersion: "node.k8s.io/v1",
  kind: "RuntimeClass",
  metadata: { name: "second" },
  handler: secondRuntimeHandler,
};

/** What a pod requests beside a secret. */
interface Requests {
  readonly runtimeClassName?: string;
  readonly claimName?: string;
  readonly projected?: object;
  /** The name of a ResourceClaim, which the scheduler allocates. */
  readonly deviceClaim?: string;
}

/** A pod that is given a secret. */
function user(
  name: string,
  nodeName: string,
  secretName: string,
  { runtimeClassName, claimName, projected, deviceClaim }: Requests = {},
): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: {
      ...(deviceClaim
        ? {
            nodeSelector: { "kubernetes.io/hostname": nodeName },
            resourceClaims: [{ name: "device", resourceClaimName: deviceClaim }],
          }
        : { nodeName }),
      ...(runtimeClassName && { runtimeClassName }),
      terminationGracePeriodSeconds: 1,
      tolerations: [{ operator: "Exists" }],
      containers: [
        {
          name: "c",
          image: images.busybox,
          command: ["sleep", "infinity"],
          ...(deviceClaim && { resources: { claims: [{ name: "device" }] } }),
          volumeMounts: [
            { name: "secret", mountPath: "/secret" },
            ...(claimName ? [{ name: "claim", mountPath: "/claim" }] : []),
            ...(projected ? [{ name: "projected", mountPath: "/projected" }] : []),
          ],
        },
      ],
      volumes: [
        { name: "secret", secret: { secretName } },
        ...(claimName ? [{ name: "claim", persistentVolumeClaim: { claimName } }] : []),
        ...(projected ? [{ name: "projected", projected }] : []),
      ],
    },
  };
}

/** kubectl with the client certificate that a node keeps in its Secret. */
async function kubectlByCertificate({ cluster }: HelmLab, nodeName: string) {
  const secret = await cluster.get<Secret>("secret", certificateSecret(nodeName), release.namespace);
  const pem = Buffer.from(secret?.data?.[`${nodeName}.kubelet-client.pem`] ?? "", "base64");
  const file = join(cluster.layout.dir, `${nodeName}.pem`);
  writeFileSync(file, pem, { mode: 0o600 });
  const flags = [
    `--server=${apiServerUrl}`,
    `--certificate-authority=${join(cluster.layout.pki, "ca.crt")}`,
    `--client-certificate=${file}`,
    `--client-key=${file}`,
  ];
  return (args: readonly string[]) =>
    run(networkArgv(cluster.layout, [cluster.tools.path("kubectl"), ...flags, ...args]));
}
