import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, EndpointSlice, Node, Pod } from "../../src/objects.ts";
import { type Agent, type AgentOptions, startGraftlet } from "../harness/agent.ts";
import { startLab, type Lab } from "../harness/lab.ts";
import { isRemote, providerUnderTest } from "../harness/runtime-daemon.ts";
import { type RuntimeLens, runtimeLenses } from "../harness/runtime-lens.ts";

/** A node on a network of its own begins so; any other is told. */
const byDefault = isRemote(providerUnderTest());
const isolated: AgentOptions = byDefault ? { providerConfig: { network: "isolated" } } : {};
const told = (choice: string): AgentOptions => ({ ...isolated, args: [`--daemon-sets=${choice}`] });
const none = byDefault ? isolated : told("none");

const agents = ["calico-node", "cilium", "everywhere", "kube-proxy", "node-exporter"];
const within = () => AbortSignal.timeout(10_000);

describe("DaemonSets excluded from the node", { timeout: 600_000 }, () => {
  let lab: Lab;
  let agent: Agent;
  let lens: RuntimeLens;
  /** Rules of the machine's firewall, and its folder of CNI, before there was any DaemonSet or pod. */
  let untouched: string;
  let placed: readonly Pod[];

  const manifest = (file: string): string =>
    readFileSync(join(import.meta.dirname, "daemonsets", file), "utf8")
      .replaceAll("path: /var/lib/kubelet", `path: ${lab.cluster.layout.kubeletRoot}`)
      .replaceAll("path: /etc/cni/net.d", `path: ${cniFolder()}`);
  const cniFolder = () => join(lab.cluster.layout.containerd, "cni");
  const inside = (command: string) => lab.cluster.mustRunInside(["sh", "-c", command]);
  // Sorted: kube-proxy writes the rules of its Services in another order each time.
  const rules = () => inside("iptables-save | grep -v '^#' | sed 's/\\[[0-9:]*\\]//' | sort");
  const network = () => inside(`cd ${cniFolder()} && ls -l && cat *`);
  const machine = async (): Promise<string> => `${await rules()}${await network()}`;
  /** Beside pods of others, which have rules of their own: what the agents would do there. */
  const marks = async (): Promise<readonly string[]> =>
    (await machine()).match(/^:OF-A-DAEMONSET|10-calico\.conflist$/gm) ?? [];
  const ofAgents = async (names: readonly string[] = agents): Promise<readonly Pod[]> => {
    const { items } = await lab.pods.api.get<{ items: Pod[] }>("/api/v1/namespaces/default/pods?labelSelector=agent");
    const found = items.filter(({ metadata: { labels } }) => names.includes(labels?.["agent"] ?? ""));
    return found.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
  };
  const uids = (pods: readonly Pod[]) => pods.map(({ metadata }) => metadata.uid);
  const rollOut = async (names: readonly string[] = agents): Promise<void> => {
    for (const name of names)
      await lab.cluster.mustKubectl(["rollout", "status", `daemonset/${name}`, "--timeout=30s"]);
  };
  const runs = async (): Promise<readonly string[]> => {
    const sandboxes = await lens.sandboxes(within());
    const ready = sandboxes.filter((sandbox) => sandbox.ready).map(({ labels }) => labels["agent"] ?? "");
    return [...new Set(ready.filter(Boolean))].sort();
  };
  const skippedDaemonSets = async () => {
    const { cluster } = lab;
    const node = await cluster.get<Node>("node", cluster.nodeName);
    return node?.status?.conditions?.find(({ type }) => type === "DaemonSetsSkipped");
  };
  const restart = async (options: AgentOptions): Promise<void> => {
    await agent.stop();
    agent = await startGraftlet(lab.cluster, options);
  };
  /** Waits until these run, all others of the agents are placeholders, and each of them is ready. */
  const settled = (running: readonly string[]): Promise<readonly Pod[]> =>
    lab.cluster.waitFor(`${running.join() || "none"} to run`, async () => {
      const pods = await ofAgents();
      const isRight = (pod: Pod) =>
        isReady(pod) &&
        !pod.metadata.deletionTimestamp &&
        (pod.status?.reason !== "NotRunByGraftlet") === running.includes(pod.metadata.labels?.["agent"] ?? "");
      return pods.length === agents.length && pods.every(isRight) && pods;
    });

  before(async () => {
    lab = await startLab("daemonsets", none);
    agent = lab.agent;
    lens = runtimeLenses[lab.cluster.provider](lab.cluster);
    await lab.cluster.apply({
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "everywhere" },
      spec: { selector: { agent: "everywhere" }, ports: [{ port: 80 }], publishNotReadyAddresses: true },
    });
    untouched = await lab.cluster.waitFor("the rules of the Service", async () => {
      const seen = await machine();
      // kube-proxy writes the filter table before the nat table.
      return /default\/everywhere/.test(seen) && /default\/kubernetes:https cluster IP/.test(seen) && seen;
    });
  });
  after(async () => {
    await lens?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("excluded DaemonSets complete their rollouts with ready placeholders, and one event explains them", async () => {
    const { cluster } = lab;
    const node = await cluster.get<Node>("node", cluster.nodeName);
    assert.equal(node?.metadata.annotations?.["graftlet.dev/daemon-sets"], byDefault ? "none" : undefined);
    await cluster.apply(manifest("agents.yaml"));
    await rollOut();
    placed = await ofAgents();
    assert.equal(placed.length, agents.length);
    for (const { metadata, status } of placed) {
      assert.deepEqual([status?.phase, status?.reason], ["Running", "NotRunByGraftlet"], metadata.name);
      assert.deepEqual(
        [status?.podIP, status?.containerStatuses, status?.initContainerStatuses],
        Array(3).fill(undefined),
      );
    }
    const events = await lab.pods.api.get<{ items: CoreEvent[] }>("/api/v1/namespaces/default/events");
    const about = ({ metadata: { uid } }: Pod) =>
      events.items.filter(({ involvedObject }) => involvedObject.uid === uid);
    for (const pod of placed)
      assert.deepEqual(
        about(pod).flatMap(({ reason, count }) => (reason === "Scheduled" ? [] : [`${reason} ${count}`])),
        ["NotRunByGraftlet 1"],
        pod.metadata.name,
      );
    const skipped = await cluster.waitFor("the node's condition to name them", async () => {
      const found = (await skippedDaemonSets())?.message ?? "";
      return agents.every((name) => found.includes(`default/${name}`)) && found;
    });
    assert.match(skipped, /are shown as Ready, but do not run here/);
    const metrics = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`]);
    assert.equal(metrics.match(/^graftlet_placeholder_pods\{.*\} 1$/gm)?.length, agents.length);
    assert.match(await cluster.mustKubectl(["get", "pods"]), /^everywhere-\S+ +0\/1 +NotRunByGraftlet +0 /m);
  });

  test("excluded DaemonSets leave nothing on the machine, and receive no traffic", async () => {
    const { cluster, pods } = lab;
    assert.deepEqual([await runs(), await lens.containers(within())], [[], []]);
    assert.equal(await machine(), untouched);
    const slices = await pods.api.get<{ items: EndpointSlice[] }>(
      "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=everywhere",
    );
    assert.deepEqual(
      slices.items.flatMap(({ endpoints }) => endpoints ?? []),
      [],
    );
    const stats = await pods.api.get<{ pods: unknown[] }>(`/api/v1/nodes/${cluster.nodeName}/proxy/stats/summary`);
    assert.deepEqual(stats.pods, []);
  });

  test("excluded DaemonSets answer requests for logs and exec with one sentence", async () => {
    const { cluster } = lab;
    const name = placed.find(({ metadata }) => metadata.labels?.["agent"] === "everywhere")?.metadata.name ?? "";
    for (const args of [
      ["logs", name],
      ["exec", name, "--", "true"],
      ["attach", name],
    ]) {
      const { code, stderr } = await cluster.kubectl(args);
      assert.notEqual(code, 0);
      assert.match(stderr, /is a placeholder: this pod does not run: its node skips its DaemonSet/);
    }
  });

  test("excluded DaemonSets complete a second rollout at once, like other DaemonSets", async () => {
    const names = agents.map((name) => `daemonset/${name}`);
    const since = performance.now();
    await lab.cluster.mustKubectl(["rollout", "restart", ...names]);
    await rollOut();
    const tookMs = performance.now() - since;
    const anew = await settled([]);
    for (const uid of uids(anew)) assert.ok(!uids(placed).includes(uid));
    assert.ok(tookMs < 20_000, `no grace period is waited for: ${tookMs} ms`);
    placed = anew;
    assert.deepEqual([await runs(), await machine()], [[], untouched]);
  });

  test("excluded DaemonSets use no resources: another pod can use the port that one of them requests", async () => {
    const { pods, cluster } = lab;
    const ports = [{ containerPort: 9100, hostPort: 9100 }];
    await pods.create("port", { nodeName: cluster.nodeName, containers: [{ ports }] });
    await pods.ready("port");
    const gone = pods.gone("port");
    await pods.remove("port", 0);
    await gone;
  });

  test("excluded DaemonSets stay unchanged across a restart", async () => {
    await restart(none);
    await settled([]);
    await lab.pods.create("after", {});
    await lab.pods.ready("after");
    const versions = (pods: readonly Pod[]) => pods.map(({ metadata }) => metadata.resourceVersion);
    assert.deepEqual(versions(await ofAgents()), versions(placed));
    await lab.pods.remove("after", 0);
    assert.deepEqual(await runs(), []);
  });

  test("excluded DaemonSets never include those that mount the plugin directories or opt in", async () => {
    await restart(told("selected"));
    await lab.cluster.apply(manifest("plugin.yaml"));
    await rollOut(["csi-node"]);
    assert.deepEqual(await runs(), ["csi-node"]);
    assert.deepEqual(uids(await settled([])), uids(placed));
    const template = { metadata: { annotations: { "graftlet.dev/run": "true" } } };
    await lab.cluster.mustKubectl(["patch", "daemonset/everywhere", "--patch", JSON.stringify({ spec: { template } })]);
    await rollOut();
    await settled(["everywhere"]);
    assert.deepEqual([await runs(), await marks()], [["csi-node", "everywhere"], []]);
  });

  test("replaces pods with placeholders, and placeholders with pods, when the selection changes", async () => {
    await restart(told("all"));
    await settled(agents);
    assert.deepEqual(await runs(), ["csi-node", ...agents].sort());
    assert.deepEqual(await marks(), [":OF-A-DAEMONSET", "10-calico.conflist"], "what they do otherwise");
    await lab.cluster.waitFor("the node's condition to go", async () => !(await skippedDaemonSets()));
    await restart(none);
    await settled([]);
    await lab.cluster.waitFor("their sandboxes to end", async () => (await runs()).length === 0);
  });

  if (byDefault)
    test("a Node created before this setting existed runs all DaemonSets, as before", async () => {
      await lab.cluster.mustKubectl(["annotate", "node", lab.cluster.nodeName, "graftlet.dev/daemon-sets-"]);
      await restart(isolated);
      await settled(agents);
      assert.match(agent.log(), /running pods of all DaemonSets, as before/);
    });
});

function isReady({ status }: Pod): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
}
