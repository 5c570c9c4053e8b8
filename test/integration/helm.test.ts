import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { GraftedNode } from "../../src/fleet/grafted-node.ts";
import type { ProcessReport } from "../../src/process/status-socket.ts";
import { nodeReady } from "../harness/agent.ts";
import { chart } from "../harness/helm.ts";
import { type HelmLab, loginSecret, podSecurity, release, startHelmLab } from "../harness/helm-lab.ts";
import { followReadme } from "./helm/readme.ts";
import { inNamespace, type Release, releaseOf, shareCertificates } from "./helm/release.ts";
import { strangeRequests } from "./helm/requests.ts";
import { podsOf, standing } from "./helm/workload.ts";

const { name, namespace, node: nodeName } = release;

describe("helm install of a release whose Deployment serves a node", { timeout: 1_800_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let strangers: readonly string[] = [];

  /** A label, an annotation and a taint. */
  const marks = [
    "--set=nodes[0].labels.example\\.org/site=north",
    "--set=nodes[0].annotations.example\\.org/rack=7 b",
    "--set=nodes[0].taints[0].key=example.org/dedicated,nodes[0].taints[0].value=press,nodes[0].taints[0].effect=NoSchedule",
  ];
  const marksOf = async () => {
    const { metadata, spec } = (await edge.node()) ?? {};
    const taint = spec?.taints?.find(({ key }) => key === "example.org/dedicated");
    return [metadata?.labels?.["example.org/site"], metadata?.annotations?.["example.org/rack"], taint?.value];
  };
  const explain = { explain: () => edge.log() };
  const takesPods = async (count: string) => (await edge.node())?.status?.capacity?.["pods"] === count;

  before(async () => {
    lab = await startHelmLab("helm", { bare: true, say: (line) => console.error(line) });
    edge = releaseOf(lab);
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("the README's first commands, with this checkout's chart, give a node whose pods are reachable", async () => {
    await followReadme({ lab, chart, explain: edge.log });
    await lab.cluster.mustKubectl(["delete", "pod", "hello", "--grace-period=1", "--timeout=60s"]);
    // Upgrades take the login from a Secret that the user has made; a rollback goes back to the chart's own.
    await lab.cluster.apply([loginSecret(lab.edge)]);
    // From here on it takes no pods with privileges.
    await lab.cluster.mustKubectl(["label", "namespace", namespace, `${podSecurity}=restricted`]);
  });

  test("a name, an address and a Secret are enough for a Ready node", async () => {
    await nodeReady(lab.cluster, nodeName);
    // The cluster itself taints a Node that is made, and takes that away a moment after it is Ready.
    const made = await lab.cluster.waitFor("the cluster's taint to go", async () => {
      const node = await edge.node();
      return node?.spec?.taints?.some(({ key }) => key === "node.kubernetes.io/not-ready") ? undefined : node;
    });
    assert.deepEqual(made.spec?.taints, [{ key: "graftlet.dev/target", value: nodeName, effect: "NoSchedule" }]);
    assert.equal(made.metadata.labels?.["graftlet.dev/target"], nodeName);
    assert.equal(made.metadata.labels?.["node.kubernetes.io/exclude-from-external-load-balancers"], "");
    assert.equal(made.spec?.providerID, `graftlet://${namespace}/${name}/${nodeName}`);
    assert.equal((await edge.pods())[0]?.spec.nodeName, lab.cluster.nodeName);
  });

  test("kubectl get gn shows the node in the values, and its object is recreated after it is deleted by hand", async () => {
    const { cluster } = lab;
    const waited = ["wait", "--for=condition=Ready", `gn/${nodeName}`, inNamespace, "--timeout=60s"];
    await cluster.mustKubectl(waited, { timeoutMs: 70_000 });
    const printed = await cluster.mustKubectl(["get", "gn", inNamespace, "--no-headers"]);
    assert.match(printed, new RegExp(`^${nodeName} +True +NodeReady +${String(lab.edge.ssh["host"])} +containerd:`));
    const read = ["get", "gn", nodeName, inNamespace, "--output=json"];
    const { metadata, status } = JSON.parse(await cluster.mustKubectl(read)) as GraftedNode;
    assert.equal(status?.conditions?.find(({ type }) => type === "Accepted")?.reason, "Static");
    await cluster.mustKubectl(["delete", "gn", nodeName, inNamespace, "--timeout=20s"]);
    const again = await cluster.waitFor("the object to be there again", async () => {
      const { code, stdout } = await cluster.kubectl(read);
      return code === 0 ? (JSON.parse(stdout) as GraftedNode) : undefined;
    });
    assert.notEqual(again.metadata.uid, metadata.uid);
    await cluster.mustKubectl(waited, { timeoutMs: 70_000 });
    await nodeReady(cluster, nodeName);
  });

  test("the scheduler places only pods that select the node on it, and kubectl reaches them", async () => {
    await edge.runWorkload();
    for (const app of ["web", "greeter", "parrot"])
      for (const pod of await podsOf(lab.cluster, app)) assert.equal(pod.spec.nodeName, nodeName);
    assert.equal((await podsOf(lab.cluster, "stray"))[0]?.spec.nodeName, lab.cluster.nodeName);
    await edge.reachIn();
  });

  test("graftlet status in its Pod shows the node and its pods", async () => {
    const asked = ["exec", inNamespace, `deployment/${name}-graftlet`, "--", "graftlet", "status"];
    const text = await lab.cluster.mustKubectl(asked);
    assert.match(text, /^graftlet .*\nedge-1: ready \(ssh, link up\), [1-9]\d* pods \(.*Running/);
    const { nodes } = JSON.parse(await lab.cluster.mustKubectl([...asked, "-o", "json"])) as ProcessReport;
    assert.ok(nodes[0]?.pods.some(({ name: pod }) => pod === "parrot"));
  });

  test("helm test runs a pod on the node and reads its log", async () => {
    assert.match(await lab.mustHelm(["test", name, inNamespace, "--timeout=120s"]), /Phase:\s+Succeeded/);
  });

  test("the release approves its node's certificate, and ignores requests that are not its own", async () => {
    const serving = (await edge.requests()).filter(({ spec }) => spec.signerName.endsWith("kubelet-serving"));
    assert.deepEqual(
      serving.map(({ spec, status }) => [spec.username, status?.conditions?.map(({ reason }) => reason)]),
      [[`system:node:${nodeName}`, ["GraftletApprove"]]],
    );
    strangers = await strangeRequests(lab.cluster);
  });

  test("an upgrade does not disturb the node's pods, and copies its certificates from the Secret that all nodes shared", async () => {
    const checkCopied = await shareCertificates(lab);
    await edge.unnoticed(
      () => lab.mustHelm(["upgrade", ...lab.told, "--set=nodes[0].kubeletConfiguration.maxPods=50", ...marks]),
      () => takesPods("50"),
    );
    await checkCopied();
  });

  test("an upgrade adds a label, an annotation and a taint to the Node, and restores them after manual changes", async () => {
    await lab.cluster.mustKubectl(["label", "node", nodeName, "example.org/by-hand=stays"]);
    await lab.cluster.waitFor("the marks", async () => (await marksOf()).join() === "north,7 b,press", explain);
    await lab.cluster.mustKubectl(["label", "--overwrite", "node", nodeName, "example.org/site=south"]);
    await lab.cluster.mustKubectl(["taint", "node", nodeName, "example.org/dedicated-"]);
    await lab.cluster.waitFor("the marks, again", async () => (await marksOf()).join() === "north,7 b,press", explain);
  });

  test("an upgrade cannot change a node's root directory", async () => {
    const { code, stderr } = await lab.helm(["upgrade", ...lab.told, "--set=nodes[0].rootDir=/var/lib/kubelet"]);
    assert.notEqual(code, 0);
    const sentence =
      "edge-1 has /var/lib/kubelet/edge-1, and an upgrade cannot move it to /var/lib/kubelet: keep it, or";
    assert.ok(stderr.includes(`nodes[0].rootDir: ${sentence}`), stderr);
    await lab.mustHelm(["upgrade", ...lab.told, "--dry-run=server", "--set=nodes[0].rootDir=/var/lib/kubelet/edge-1"]);
  });

  test("a rollback does not disturb the node's pods", () =>
    edge.unnoticed(
      () => lab.mustHelm(["rollback", name, "1", inNamespace]),
      () => takesPods("110"),
    ));

  test("an upgrade of a release that does not show its nodes as objects does not disturb the node's pods", async () => {
    const objects = () => lab.cluster.mustKubectl(["get", "gn", inNamespace, "--output=name"]);
    await edge.unnoticed(() => lab.mustHelm(["upgrade", ...lab.told, "--set=nodeObjects=false"]));
    await lab.cluster.mustKubectl(["delete", "gn", "--selector=graftlet.dev/static", inNamespace]);
    assert.equal(await objects(), "");
    await edge.unnoticed(
      () => lab.mustHelm(["upgrade", ...lab.told]),
      async () => (await objects()) === `graftednode.graftlet.dev/${nodeName}\n`,
    );
  });

  test("removes settings from the Node that the release no longer configures, and keeps those of others", async () => {
    await lab.cluster.waitFor("the marks to go", async () => (await marksOf()).join() === ",,", explain);
    const { metadata, spec } = (await edge.node()) ?? {};
    assert.equal(metadata?.labels?.["example.org/by-hand"], "stays");
    assert.equal(metadata?.labels?.["graftlet.dev/target"], nodeName);
    assert.deepEqual(spec?.taints, [{ key: "graftlet.dev/target", value: nodeName, effect: "NoSchedule" }]);
  });

  test("foreign requests are still not approved after two more Pods", async () => {
    const left = (await edge.requests()).filter(({ status }) => status?.conditions === undefined);
    assert.deepEqual(left.map(({ metadata }) => metadata.name).toSorted(), [...strangers].toSorted());
    await lab.cluster.mustKubectl(["delete", "csr", ...strangers]);
  });

  test("terminating graftlet's Pod does not disturb the node's pods", () =>
    edge.unnoticed(async () => {
      const [pod] = await edge.pods();
      const kill = ["delete", "pod", pod?.metadata.name ?? "", inNamespace, "--grace-period=0", "--force"];
      await lab.cluster.mustKubectl(kill);
    }));

  test("uninstall leaves the pods on the machine and nothing in the cluster; a new release adopts them", async () => {
    const before = await standing(lab.cluster);
    const running = lab.edge.podProcesses();
    assert.notDeepEqual(running, []);
    const { uid } = (await edge.node())?.metadata ?? {};
    await lab.mustHelm(["uninstall", name, inNamespace]);
    await edge.isGone();
    await lab.cluster.waitFor(
      "the object of the node to be gone",
      async () => (await lab.cluster.mustKubectl(["get", "gn", inNamespace, "--output=name"])) === "",
      { timeoutMs: 60_000 },
    );
    await lab.cluster.waitFor(
      "the node to be NotReady",
      async () => (await edge.node())?.status?.conditions?.find(({ type }) => type === "Ready")?.status === "Unknown",
      { timeoutMs: 90_000 },
    );
    assert.deepEqual(lab.edge.podProcesses(), running);
    assert.match(await edge.install(), /Release edge serves edge-1/);
    await edge.reachIn();
    assert.deepEqual(await standing(lab.cluster), before);
    assert.equal((await edge.node())?.metadata.uid, uid);
  });

  test("onUninstall: drain removes the pods, their traces on the machine, and the Node", async () => {
    await lab.mustHelm(["upgrade", ...lab.told, "--set=onUninstall=drain"]);
    await nodeReady(lab.cluster, nodeName);
    await lab.mustHelm(["uninstall", name, inNamespace, "--timeout=180s"]);
    await edge.isGone();
    assert.equal(await edge.node(), undefined);
    assert.deepEqual(lab.edge.podProcesses(), []);
    assert.equal(await lab.edge.mustInside(["sh", "-c", "ls -A /var/lib/kubelet 2>/dev/null || true"]), "");
    assert.deepEqual(await podsOf(lab.cluster, "parrot"), []);
  });
});
