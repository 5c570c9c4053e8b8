import assert from "node:assert/strict";
import type { Cluster } from "../../harness/cluster.ts";
import { generateKeyAndProof } from "../../../src/certificates/x509.ts";

/** Checks on a real API server what the account of release `edge` writes of its Node edge-2.press, which has the account's identity, of claims,
 *  requests for certificates and events: what NodeRestriction leaves a node. The Node is there, and no graftlet. */
export async function nodeRestrictionHolds(cluster: Cluster, namespace: string): Promise<void> {
  const node = "edge-2.press";
  const account = `system:serviceaccount:${namespace}:edge-graftlet`;
  const as = async (...args: readonly string[]) => (await cluster.kubectl([...args, `--as=${account}`])).stderr;
  const patch = (what: readonly string[], body: object) =>
    as("patch", ...what, `--namespace=${namespace}`, "--type=merge", `--patch=${JSON.stringify(body)}`);
  const resources = ["nodes/status", "persistentvolumeclaims/status"].map((name) => `--resource=${name}`);
  await cluster.mustKubectl(["create", "clusterrole", "looks-at-both", "--verb=get", ...resources]);
  const bound = ["--clusterrole=looks-at-both", `--serviceaccount=${namespace}:edge-graftlet`];
  await cluster.mustKubectl(["create", "clusterrolebinding", "looks-at-both", ...bound]);

  const restricted = "node-restriction.kubernetes.io/tier";
  await cluster.mustKubectl(["label", "node", node, `${restricted}=given`]);
  const asANode = /labels that a node may set on itself/;
  for (const part of [[], ["--subresource=status"]]) {
    const labelled = (labels: object) => patch(["node", node, ...part], { metadata: { labels } });
    for (const [key, value] of [
      [restricted, "taken"],
      [restricted, null],
      ["x.node-restriction.kubernetes.io/tier", "x"],
      ["node-role.kubernetes.io/control-plane", ""],
      ["topology.kubernetes.io/rack", "x"],
      ["example.k8s.io/x", "x"],
    ] as const)
      assert.match(await labelled({ [key]: value }), asANode, `${part.join()} ${key}`);
    const own = {
      tier: "x",
      "topology.kubernetes.io/zone": "a",
      "node.kubernetes.io/x": "x",
      "topology.d.example/x": "",
    };
    assert.equal(await labelled(own), "");
    assert.equal(await labelled(Object.fromEntries(Object.keys(own).map((key) => [key, null]))), "");
  }
  const owner = { apiVersion: "v1", kind: "ConfigMap", name: "c", uid: "11111111-0000-4000-8000-000000000000" };
  const owned = await patch(["node", node], { metadata: { ownerReferences: [owner] } });
  assert.match(owned, /not change the owners of its Nodes/);

  const spec = {
    accessModes: ["ReadWriteOnce"],
    storageClassName: "none",
    resources: { requests: { storage: "1Gi" } },
  };
  const metadata = { name: "grows", namespace };
  await cluster.apply({ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata, spec });
  const claim = ["pvc", "grows", "--subresource=status"];
  const condition = { type: "FileSystemResizePending", status: "True" };
  assert.equal(await patch(claim, { status: { capacity: { storage: "2Gi" }, conditions: [condition] } }), "");
  const grown = /only report the expansion of volumes/;
  assert.match(await patch(claim, { status: { phase: "Lost" } }), grown);
  assert.match(await patch(claim, { status: { accessModes: ["ReadWriteMany"] } }), grown);
  assert.match(await patch(claim, { metadata: { annotations: { a: "b" } } }), grown);
  assert.match(await patch(claim, { metadata: { finalizers: ["example.com/f"] } }), grown);

  const slice = (name: string, where: object) => ({
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceSlice",
    metadata: { name },
    spec: { driver: "dra.example.com", pool: { name, generation: 1, resourceSliceCount: 1 }, devices: [], ...where },
  });
  await cluster.apply([
    slice("own", { nodeName: node }),
    slice("foreign", { nodeName: cluster.nodeName }),
    slice("shared", { allNodes: true }),
  ]);
  await cluster.mustKubectl(["create", "clusterrole", "sees-slices", "--verb=get,list", "--resource=resourceslices"]);
  const seeing = ["--clusterrole=sees-slices", `--serviceaccount=${namespace}:edge-graftlet`];
  await cluster.mustKubectl(["create", "clusterrolebinding", "sees-slices", ...seeing]);
  const api = "/apis/resource.k8s.io/v1/resourceslices";
  const removeSlices = (nodeName: string) => as("delete", `--raw=${api}?fieldSelector=spec.nodeName%3D${nodeName}`);
  assert.match(await removeSlices(cluster.nodeName), /only delete ResourceSlices/);
  assert.match(await as("delete", `--raw=${api}`), /only delete ResourceSlices/);
  await cluster.apply([slice("own", { nodeName: node })]);
  assert.equal(await removeSlices(node), "");
  const left = await cluster.mustKubectl(["get", "resourceslices", "--output=name"]);
  assert.deepEqual(
    left.trim().split("\n").toSorted(),
    ["foreign", "shared"].map((name) => `resourceslice.resource.k8s.io/${name}`),
  );

  const rights = ["--verb=create", "--resource=podcertificaterequests"];
  await cluster.mustKubectl(["create", "clusterrole", "certifies", ...rights]);
  const certifying = ["--clusterrole=certifies", `--serviceaccount=${namespace}:edge-graftlet`];
  await cluster.mustKubectl(["create", "clusterrolebinding", "certifies", ...certifying]);
  const { request: stubPKCS10Request } = await generateKeyAndProof("ED25519");
  const certify = async (nodeName: string) => {
    const pod = { podName: "p", podUID: "p-uid", serviceAccountName: "default", serviceAccountUID: "account-uid" };
    const request = {
      apiVersion: "certificates.k8s.io/v1beta1",
      kind: "PodCertificateRequest",
      metadata: { generateName: "req-", namespace },
      spec: { signerName: "example.com/test", ...pod, nodeName, nodeUID: "node-uid", stubPKCS10Request },
    };
    const stdin = JSON.stringify(request);
    return (await cluster.kubectl(["create", "--filename=-", `--as=${account}`], { stdin })).stderr;
  };
  assert.equal(await certify(node), "");
  assert.match(await certify("stranger"), /request certificates for pods of its own nodes/);

  let made = 0;
  const tell = async (host: string, reportingInstance = host, core = true) => {
    const about = { kind: "Pod", name: "theirs", namespace };
    const text = core
      ? { apiVersion: "v1", involvedObject: about, message: "m", source: { component: "kubelet", host } }
      : {
          apiVersion: "events.k8s.io/v1",
          regarding: about,
          note: "m",
          action: "a",
          eventTime: "2026-01-01T00:00:00.000000Z",
        };
    const said = { type: "Normal", reason: "Test", reportingInstance };
    const reporter = { [core ? "reportingComponent" : "reportingController"]: "example.com/kubelet" };
    const event = { kind: "Event", metadata: { name: `e-${++made}`, namespace }, ...text, ...said, ...reporter };
    return (await cluster.kubectl(["create", "--filename=-", `--as=${account}`], { stdin: JSON.stringify(event) }))
      .stderr;
  };
  assert.equal(await tell(node), "");
  const others = /only write events of its own nodes/;
  assert.match(await tell("stranger"), others);
  assert.match(await tell(node, "stranger"), others);
  assert.match(await tell("stranger", node), others);
  await cluster.mustKubectl(["create", "clusterrole", "tells", "--verb=create", "--resource=events.events.k8s.io"]);
  const told = ["--clusterrole=tells", `--serviceaccount=${namespace}:edge-graftlet`];
  await cluster.mustKubectl(["create", "clusterrolebinding", "tells", ...told]);
  assert.equal(await tell(node, node, false), "");
  assert.match(await tell("stranger", "stranger", false), others);
}
