import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import type { Node, Pod } from "../../src/objects.ts";
import { type Agent, graftletProgram, kubeletConfiguration, nodeCommand, startGraftlet } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Conversation, converse } from "../harness/conversation.ts";
import { gained } from "../harness/holdings.ts";
import { addresses } from "../harness/namespaces.ts";
import { images } from "../harness/pods.ts";
import { targetTraces } from "../harness/target-traces.ts";

const namespace = "edge";
const rbac = "rbac.authorization.k8s.io";
const account = { kind: "ServiceAccount", name: "leave", namespace };
const mounted = "/var/run/secrets/kubernetes.io/serviceaccount";
/** Nothing listens on its machine's port. */
const dead = "edge-3";
const leaving = ["edge-1", "edge-2"];

/** What the account of the Pod that takes nodes out of the cluster may do, no more. */
const granted = [
  { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
  { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "leave", namespace } },
  {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRole",
    metadata: { name: "leave" },
    rules: [
      { apiGroups: [""], resources: ["nodes"], resourceNames: [...leaving, dead], verbs: ["get", "patch", "delete"] },
      { apiGroups: [""], resources: ["nodes/status"], resourceNames: [...leaving, dead], verbs: ["patch"] },
      { apiGroups: [""], resources: ["pods"], verbs: ["list", "delete"] },
    ],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "Role",
    metadata: { name: "leave", namespace },
    rules: [
      {
        apiGroups: ["apps"],
        resources: ["deployments/scale"],
        resourceNames: ["graftlet"],
        verbs: ["get", "patch"],
      },
    ],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRoleBinding",
    metadata: { name: "leave" },
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "leave" },
    subjects: [account],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "RoleBinding",
    metadata: { name: "leave", namespace },
    roleRef: { apiGroup: rbac, kind: "Role", name: "leave" },
    subjects: [account],
  },
];

/** Pods of one container on nodes with these labels. */
function workload(kind: string, name: string, nodeSelector: Readonly<Record<string, string>>, command: string) {
  const labels = { app: name };
  return {
    apiVersion: "apps/v1",
    kind,
    metadata: { name, namespace },
    spec: {
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          nodeSelector,
          terminationGracePeriodSeconds: 15,
          containers: [{ name: "main", image: images.busybox, command: ["sh", "-c", command] }],
        },
      },
    },
  };
}

describe("graftlet leave", { timeout: 900_000 }, () => {
  let cluster: Cluster;
  /** Of the node `home`, where a Pod stands in for the one that graftlet would run in. */
  let home: Agent;
  let agents: readonly Agent[];
  /** What was on the machine before any node, and before the nodes that leave. */
  let untouched: ReadonlySet<string>;
  let others: ReadonlySet<string>;

  const startNode = (name: string, port: number) => {
    const provider = join(cluster.layout.dir, `${name}-provider.yaml`);
    writeFileSync(provider, stringify({ sharing: "shared" }));
    return startGraftlet(cluster, {
      nodeName: name,
      args: [
        `--provider-config=${provider}`,
        `--root-dir=${rootOf(name)}`,
        `--node-labels=site=${name === "home" ? "home" : "edge"}`,
      ],
      config: { port, healthzPort: name === "home" ? 10_248 : 0 },
    });
  };
  const rootOf = (name: string) => join(cluster.layout.kubeletRoot, name);
  /** Beside the node `home`: its files, and the cgroups that it counts on. */
  const standing = async () =>
    new Set(
      [...(await targetTraces(cluster))].filter(
        (line) => !line.includes(`${rootOf("home")}/`) && !/kubepods(\/burstable|\/besteffort)?$/.test(line),
      ),
    );
  const podsOf = async (node: string) =>
    (
      JSON.parse(
        await cluster.mustKubectl([
          "get",
          "pods",
          "--all-namespaces",
          `--field-selector=spec.nodeName=${node}`,
          "--output=json",
        ]),
      ) as { items: Pod[] }
    ).items;
  const nodes = async () => (await cluster.mustKubectl(["get", "nodes", "--output=name"])).trim().split("\n");

  /** A file of nodes as the graftlet that leaves would have it. */
  const fileOf = (...names: readonly string[]) => {
    const file = join(cluster.layout.dir, `${names.join("-")}.yaml`);
    const { apiVersion: _version, kind: _kind, ...kubelet } = kubeletConfiguration(cluster);
    writeFileSync(
      file,
      stringify({
        apiVersion: "graftlet.dev/v1alpha1",
        kind: "GraftletConfiguration",
        nodes: names.map((name) => ({
          name,
          rootDir: rootOf(name),
          kubeletConfiguration: kubelet,
          ...(name === dead
            ? {
                provider: "ssh",
                providerConfig: { ...deadMachine, passwordFile: join(cluster.layout.dir, "password") },
              }
            : { provider: "cri", providerConfig: { sharing: "shared" } }),
        })),
      }),
    );
    return `--nodes=${file}`;
  };
  const leave = (...flags: readonly string[]): Conversation => {
    const program = [graftletProgram(), "leave"];
    const env = { KUBERNETES_SERVICE_HOST: addresses.node, KUBERNETES_SERVICE_PORT: "6443" };
    return converse(cluster.spawnAtAgent([...nodeCommand, ...program, ...flags], { env }));
  };

  before(async () => {
    cluster = await startCluster({ name: "leave", provider: "cri" });
    const { layout } = cluster;
    writeFileSync(join(layout.dir, "password"), "secret\n", { mode: 0o600 });
    await cluster.apply(granted);
    const token = await cluster.mustKubectl(["create", "token", "leave", "--namespace", namespace]);
    const ca = readFileSync(certificatesIn(layout.pki).ca.cert, "utf8");
    for (const [name, content] of Object.entries({ token, namespace, "ca.crt": ca }))
      await cluster.runInside(["sh", "-c", `mkdir -p ${mounted} && cat > ${mounted}/${name}`], { stdin: content });
    untouched = await targetTraces(cluster);
    home = await startNode("home", 10_250);
    others = await standing();
    agents = await Promise.all(leaving.map((name, index) => startNode(name, 10_260 + index)));
    await cluster.apply([
      workload("Deployment", "graftlet", { site: "home" }, "sleep infinity"),
      workload("DaemonSet", "collector", { site: "edge" }, "sleep infinity"),
      workload("Deployment", "web", { site: "edge" }, "trap '' TERM; while true; do sleep 1; done"),
    ]);
    await cluster.mustKubectl(["--namespace", namespace, "scale", "deployment", "web", "--replicas=3"]);
    for (const name of ["deployment/graftlet", "deployment/web", "daemonset/collector"])
      await cluster.mustKubectl(["--namespace", namespace, "rollout", "status", name, "--timeout=120s"], {
        timeoutMs: 150_000,
      });
    await cluster.apply({
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      metadata: { name: "web", namespace },
      spec: { minAvailable: 3, selector: { matchLabels: { app: "web" } } },
    });
  });
  after(async () => {
    for (const agent of [home, ...(agents ?? [])]) await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("does nothing without confirmation", async () => {
    await using asked = leave(fileOf(...leaving), "--deployment=graftlet");
    assert.equal(await asked.ended(), 1);
    assert.match(asked.stdout(), /edge-1, edge-2\. .*\nnothing was done; run this with --yes to do it\n$/);
    assert.equal((await cluster.get<Node>("node", "edge-1"))?.spec?.unschedulable, undefined);
  });

  test("killed at any step and repeated, removes pods, traces on the machine and Nodes, and nothing else", async () => {
    const flags = [fileOf(...leaving), "--deployment=graftlet", "--timeout=30s", "--yes"];
    for (const step of ["cordoned", "(deleting pods|no pods to delete)", "(pods have terminated|no pods to delete)"]) {
      await using killed = leave(...flags);
      for (const name of leaving) await killed.says(new RegExp(`^node ${name}: ${step}`, "m"));
      await killed.kill();
    }
    for (const name of leaving)
      assert.deepEqual(
        (await podsOf(name)).map(({ metadata }) => metadata.ownerReferences?.[0]?.kind),
        ["DaemonSet"],
      );
    {
      await using killed = leave(...flags);
      await killed.says("all of its Pods have terminated");
      await killed.says("in use by another graftlet");
      await killed.kill();
    }
    const deployment = await cluster.get<{ spec: { replicas: number } }>("deployment", "graftlet", namespace);
    assert.equal(deployment?.spec.replicas, 0);
    assert.deepEqual(await nodes(), ["node/edge-1", "node/edge-2", "node/home"]);
    // The stand-in's Pod has gone, and so would graftlet have.
    assert.deepEqual(await Promise.all(agents.map((agent) => agent.stop())), [true, true]);
    for (const step of ["removed container main of pod edge/collector", "removed directory "]) {
      await using killed = leave(...flags);
      await killed.says(step);
      await killed.kill();
    }
    await using last = leave(fileOf(...leaving, dead), ...flags.slice(1, 2), "--timeout=10s", "--yes");
    assert.equal(await last.ended(120_000), 1, last.stdout());
    assert.match(last.stdout(), /^cannot remove node edge-3: its target is not clean/m);
    assert.match(last.stdout(), /^not removed: edge-3\. Fix the problems above, and run this again\.$/m);
    assert.deepEqual(await nodes(), ["node/home"]);
    for (const name of leaving) assert.deepEqual(await podsOf(name), []);
    const now = await standing();
    assert.deepEqual([gained(others, now), gained(now, others)], [[], []]);
    const leases = await cluster.mustKubectl(["--namespace=kube-node-lease", "get", "leases", "--output=name"]);
    assert.equal(leases.includes("edge-"), false, leases);

    await using again = leave(...flags);
    assert.equal(await again.ended(), 0, again.stdout());
    assert.match(again.stdout(), /^node edge-1: nothing of node edge-1 is left$/m);
  });

  test("explains when to stop graftlet if there is no Deployment", async () => {
    const flags = [`--kubeconfig=${cluster.adminKubeconfig}`, fileOf("home"), "--node=home", "--yes"];
    await using byHand = leave(...flags);
    await byHand.says("stop this node's graftlet now");
    assert.deepEqual(await nodes(), ["node/home"]);
    assert.equal(await home.stop(), true);
    assert.equal(await byHand.ended(), 0, byHand.stdout());
    assert.equal(await cluster.mustKubectl(["get", "nodes", "--output=name"]), "");
    const now = await targetTraces(cluster);
    assert.deepEqual([gained(untouched, now), gained(now, untouched)], [[], []]);
  });
});

const deadMachine = {
  host: "127.0.0.1",
  port: 1,
  user: "root",
  hostKeyFingerprints: ["SHA256:ChFXz0V1m4R3kEsY7i+1m7c3x9s2mZ8i0o5c6K0yRSY"],
};
