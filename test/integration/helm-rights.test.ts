import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import type { Secret } from "../../src/objects.ts";
import { nodeReady } from "../harness/agent.ts";
import { createCgroup } from "../harness/cgroups.ts";
import { apiServerUrl } from "../harness/control-plane.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { images } from "../harness/pods.ts";
import { run } from "../harness/processes.ts";
import { inNamespace, type Release, releaseOf } from "./helm/release.ts";
import { deedsOf, type Right, rightsIn, unused } from "./helm/rights.ts";

/** A second node on the same machine, which speaks as the account. */
const accountNode = "edge-2";

describe("the rights of a release", { timeout: 900_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let rights: readonly Right[];

  before(async () => {
    lab = await startHelmLab("helm-rights", { audited: true, say: (line) => console.error(line) });
    edge = releaseOf(lab);
    const { ssh, kubeletConfiguration: machine, layout } = lab.edge;
    const cgroupRoot = `${layout.cgroup}/second`;
    createCgroup({ ...layout, cgroup: cgroupRoot });
    const own = { ...machine, cgroupRoot, podLogsDir: join(layout.dir, "second-logs") };
    const second = {
      name: accountNode,
      identity: "serviceAccount",
      ssh: { ...ssh, existingSecret: release.secret, rootDir: join(layout.dir, "second") },
      kubeletConfiguration: own,
    };
    const { port } = ssh;
    const first = { name: release.node, ssh: { port }, kubeletConfiguration: machine };
    writeFileSync(lab.values, stringify({ onUninstall: "drain", nodes: [first, second] }));
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("two nodes of one release, by their own certificate and by the account", async () => {
    await edge.install();
    await nodeReady(lab.cluster, accountNode);
    const manifests = await Promise.all(
      ["manifest", "hooks"].map((part) => lab.mustHelm(["get", part, release.name, inNamespace])),
    );
    rights = rightsIn(manifests.join("\n---\n"));
    assert.ok(rights.length > 20, `${rights.length} rights`);
    await edge.approve();
    await edge.runWorkload();
    await edge.reachIn();
  });

  test("by a node's certificate only secrets of the node's own pods are read", async () => {
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
    assert.match(refused.stderr, /Forbidden.*system:node:edge-1.*secrets "foreign"/);
  });

  test("the account may not become another node", async () => {
    const account = `--as=system:serviceaccount:${release.namespace}:${release.name}-graftlet`;
    for (const asked of [
      ["get", "nodes/node-1"],
      ["get", "secrets", inNamespace],
      ["create", "pods"],
      ["delete", `node/${release.node}`],
    ])
      assert.equal((await lab.cluster.kubectl(["auth", "can-i", ...asked, account])).stdout, "no\n", asked.join(" "));
  });

  test("a tour of both nodes, their removal, and no rule of the chart is left unused", async () => {
    await lab.cluster.apply([user("of-account", accountNode, "own")]);
    await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/of-account", "--timeout=55s"]);
    await lab.cluster.mustKubectl(["exec", "of-account", "--", "true"]);
    await lab.cluster.mustKubectl(["delete", "pod", "of-account", "--timeout=55s"]);
    await lab.cluster.apply([user("last", accountNode, "own")]);
    await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/last", "--timeout=55s"]);
    // The cluster's approver asks by itself whether the account may have its request approved.
    const approved = (await edge.requests()).find(({ spec }) => spec.signerName.endsWith("client-kubelet"));
    assert.equal(approved?.status?.conditions?.[0]?.reason, "AutoApproved");
    await lab.mustHelm(["uninstall", release.name, inNamespace, "--timeout=240s"]);
    await edge.isGone();
    assert.equal(await edge.node(accountNode), undefined);
    const left = unused(rights, deedsOf(lab.cluster.layout));
    const known = ({ resource }: Right) => resource === "certificatesigningrequests/nodeclient";
    assert.deepEqual(
      left.filter((right) => !known(right)),
      [],
    );
  });
});

/** A pod that is given a secret. */
function user(name: string, nodeName: string, secretName: string): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: {
      nodeName,
      terminationGracePeriodSeconds: 1,
      tolerations: [{ operator: "Exists" }],
      containers: [
        {
          name: "c",
          image: images.busybox,
          command: ["sleep", "infinity"],
          volumeMounts: [{ name: "secret", mountPath: "/secret" }],
        },
      ],
      volumes: [{ name: "secret", secret: { secretName } }],
    },
  };
}

/** kubectl with the client certificate that a node keeps in the release's Secret. */
async function kubectlByCertificate({ cluster }: HelmLab, nodeName: string) {
  const secret = await cluster.get<Secret>("secret", `${release.name}-graftlet-certificates`, release.namespace);
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
