import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { CertificateSigningRequest, Node, Pod } from "../../src/objects.ts";
import { nodeReady } from "../harness/agent.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { reachIn } from "./helm/streams.ts";
import { podsOf, standing, workload } from "./helm/workload.ts";

const { name, namespace, node: nodeName } = release;
const inNamespace = `--namespace=${namespace}`;
/** Kinds of all that a release may be made of. */
const kinds = [
  ...["deployments", "replicasets", "pods", "jobs", "configmaps", "secrets", "services", "endpointslices"],
  ...["serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings"],
  ...["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
].join(",");

describe("helm install: the Deployment that is a node", { timeout: 900_000 }, () => {
  let lab: HelmLab;
  let nodeUid: string | undefined;

  const node = () => lab.cluster.get<Node>("node", nodeName);
  const requests = async () =>
    (
      JSON.parse(await lab.cluster.mustKubectl(["get", "csr", "--output=json"])) as {
        items: CertificateSigningRequest[];
      }
    ).items;
  const graftletPod = async () => {
    const listed = ["get", "pods", inNamespace, "--selector=app.kubernetes.io/name=graftlet", "--output=json"];
    return (JSON.parse(await lab.cluster.mustKubectl(listed)) as { items: Pod[] }).items;
  };
  const explain = async () => (await lab.cluster.kubectl(["logs", inNamespace, `deployment/${name}-graftlet`])).stdout;
  const approve = async () => {
    const request = await lab.cluster.waitFor(
      "the request for a serving certificate",
      async () =>
        (await requests()).find(
          ({ spec, status }) => spec.signerName.endsWith("kubelet-serving") && status?.conditions === undefined,
        ),
      { explain },
    );
    await lab.cluster.mustKubectl(["certificate", "approve", request.metadata.name]);
  };
  /** Does something to the release, and checks that the node's pods do not notice, and that kubectl reaches them after. */
  const unnoticed = async (change: () => Promise<unknown>, settled: () => Promise<boolean>) => {
    const before = await standing(lab.cluster);
    const asked = (await requests()).length;
    const old = (await graftletPod())[0]?.metadata.uid;
    await change();
    await lab.cluster.waitFor(
      "another Pod of graftlet's to serve the node",
      async () => {
        const [pod, ...others] = await graftletPod();
        return (
          others.length === 0 && pod?.metadata.uid !== old && pod?.status?.phase === "Running" && (await settled())
        );
      },
      { timeoutMs: 90_000, explain },
    );
    await nodeReady(lab.cluster, nodeName);
    await reachIn(lab.cluster);
    assert.deepEqual(await standing(lab.cluster), before);
    assert.equal((await requests()).length, asked, "another certificate was asked for");
    assert.equal((await node())?.metadata.uid, nodeUid);
  };
  const takesPods = async (count: string) => (await node())?.status?.capacity?.["pods"] === count;
  /** What is left of a release, in whatever namespace, and in the namespace that was made for it. */
  const leftovers = async () =>
    lab.cluster.mustKubectl([
      "get",
      kinds,
      "--all-namespaces",
      `--selector=app.kubernetes.io/instance=${name}`,
      "--output=name",
    ]);
  const uninstalled = async () => {
    await lab.cluster.waitFor("nothing to be left of the release", async () => (await leftovers()) === "", {
      timeoutMs: 60_000,
      explain: leftovers,
    });
    const secrets = ["get", "secrets,configmaps", inNamespace, "--output=name"];
    assert.equal(await lab.cluster.mustKubectl(secrets), `secret/${release.secret}\nconfigmap/kube-root-ca.crt\n`);
  };

  before(async () => {
    lab = await startHelmLab("helm", { say: (line) => console.error(line) });
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("a name, an address and a Secret give a Ready node, by a Pod without privileges", async () => {
    const said = await lab.mustHelm(["install", ...lab.told]);
    assert.match(said, /Release edge serves edge-1/);
    await lab.cluster.waitFor("the node", async () => (await node()) !== undefined, { timeoutMs: 60_000, explain });
    await nodeReady(lab.cluster, nodeName);
    const made = await node();
    nodeUid = made?.metadata.uid;
    assert.deepEqual(made?.spec?.taints, [{ key: "graftlet.dev/target", value: nodeName, effect: "NoSchedule" }]);
    assert.equal(made?.metadata.labels?.["graftlet.dev/target"], nodeName);
    assert.equal(made?.metadata.labels?.["node.kubernetes.io/exclude-from-external-load-balancers"], "");
    assert.equal(made?.spec?.providerID, `graftlet://${namespace}/${name}/${nodeName}`);
    assert.equal((await graftletPod())[0]?.spec.nodeName, lab.cluster.nodeName);
  });

  test("its pods are placed by the scheduler, and no others; kubectl reaches into them", async () => {
    await approve();
    await lab.cluster.apply(workload);
    await lab.cluster.mustKubectl(["rollout", "status", "deployment/web", "--timeout=90s"], { timeoutMs: 100_000 });
    await lab.cluster.mustKubectl(["wait", "--for=condition=Complete", "job/greeter", "--timeout=60s"]);
    await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/parrot", "pod/stray", "--timeout=60s"]);
    for (const app of ["web", "greeter", "parrot"])
      for (const pod of await podsOf(lab.cluster, app)) assert.equal(pod.spec.nodeName, nodeName);
    assert.equal((await podsOf(lab.cluster, "stray"))[0]?.spec.nodeName, lab.cluster.nodeName);
    await reachIn(lab.cluster);
  });

  test("helm test runs a pod on the node and reads its log back", async () => {
    const said = await lab.mustHelm(["test", name, inNamespace, "--timeout=120s"]);
    assert.match(said, /Phase:\s+Succeeded/);
  });

  test("an upgrade, a rollback and the end of graftlet's Pod go unnoticed by the node's pods", async () => {
    await unnoticed(
      () => lab.mustHelm(["upgrade", ...lab.told, "--set=nodes[0].kubeletConfiguration.maxPods=50"]),
      () => takesPods("50"),
    );
    await unnoticed(
      () => lab.mustHelm(["rollback", name, "1", inNamespace]),
      () => takesPods("110"),
    );
    await unnoticed(
      async () => {
        const [pod] = await graftletPod();
        await lab.cluster.mustKubectl([
          "delete",
          "pod",
          pod?.metadata.name ?? "",
          inNamespace,
          "--grace-period=0",
          "--force",
        ]);
      },
      () => Promise.resolve(true),
    );
  });

  test("uninstall leaves the pods to the machine and nothing of the release to the cluster; a new release takes them up", async () => {
    const before = await standing(lab.cluster);
    const processes = () => lab.edge.mustInside(["sh", "-c", "pgrep -f '/agnhost netexe[c]' | sort"]);
    const running = await processes();
    await lab.mustHelm(["uninstall", name, inNamespace]);
    await uninstalled();
    await lab.cluster.waitFor(
      "the node to be NotReady",
      async () => (await node())?.status?.conditions?.find(({ type }) => type === "Ready")?.status === "Unknown",
      { timeoutMs: 90_000 },
    );
    assert.equal(await processes(), running);
    await lab.mustHelm(["install", ...lab.told]);
    await nodeReady(lab.cluster, nodeName);
    await approve();
    await reachIn(lab.cluster);
    assert.deepEqual(await standing(lab.cluster), before);
    assert.equal((await node())?.metadata.uid, nodeUid);
  });

  test("onUninstall: drain takes the pods, what the machine held of them, and the node away", async () => {
    await lab.mustHelm(["upgrade", ...lab.told, "--set=onUninstall=drain"]);
    await nodeReady(lab.cluster, nodeName);
    await lab.mustHelm(["uninstall", name, inNamespace, "--timeout=180s"]);
    await uninstalled();
    assert.equal(await node(), undefined);
    assert.equal(await lab.edge.mustInside(["sh", "-c", "pgrep -f '/agnhost netexe[c]|you sai[d]' || true"]), "");
    assert.equal(await lab.edge.mustInside(["sh", "-c", "ls -d /var/lib/kubelet || true"]), "");
    assert.deepEqual(await podsOf(lab.cluster, "parrot"), []);
  });
});
