import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { nodeReady } from "../../harness/agent.ts";
import { createCgroup } from "../../harness/cgroups.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { converse } from "../../harness/conversation.ts";
import { type HelmLab, release } from "../../harness/helm-lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { must } from "../../harness/processes.ts";
import { server, serverPort } from "./tunnel.ts";

/** Nodes are reached side by side; each has a local port for its port-forward from here on. */
const firstLocalPort = 18_100;

/** The pod that is made on a node. */
export const podOf = (node: string) => `on-${node}`;

/** Gives a lab's release further nodes on the machine of its first, each with folders and a cgroup of its own, and a pod on each node,
 *  the first included. `told`: arguments of helm beside the lab's; `network`: theirs. */
export async function runOnFurtherNodes(
  lab: HelmLab,
  names: readonly string[],
  told: readonly string[],
  network = "isolated",
): Promise<void> {
  const { cluster, edge, values } = lab;
  const { ssh, kubeletConfiguration, layout } = edge;
  const further = names.map((name) => {
    const cgroupRoot = `${layout.cgroup}/${name}`;
    createCgroup({ ...layout, cgroup: cgroupRoot });
    return {
      name,
      rootDir: join(layout.dir, name),
      ssh: { ...ssh, network, existingSecret: release.secret },
      kubeletConfiguration: { ...kubeletConfiguration, cgroupRoot, podLogsDir: join(layout.dir, `${name}-logs`) },
    };
  });
  const { nodes } = parse(readFileSync(values, "utf8")) as { nodes: readonly object[] };
  writeFileSync(values, stringify({ nodes: [...nodes, ...further] }));
  await lab.mustHelm(["upgrade", ...lab.told, ...told]);
  const all = [release.node, ...names];
  await Promise.all(all.map((name) => nodeReady(cluster, name, 120_000)));
  const tolerations = [{ operator: "Exists" }];
  await cluster.apply(all.map((nodeName) => server(podOf(nodeName), { nodeName, tolerations })));
  const pods = all.map((name) => `pod/${podOf(name)}`);
  await cluster.mustKubectl(["wait", "--for=condition=Ready", ...pods, "--timeout=120s"], { timeoutMs: 130_000 });
}

/** Logs, exec, port-forward and metrics of each of these nodes, through one API server. @param server its URL; the cluster's first unless
 *  given. */
export async function eachIsReached(cluster: Cluster, nodes: readonly string[], server?: string): Promise<void> {
  const by = server ? [`--server=${server}`] : [];
  const reach = async (node: string, index: number) => {
    const healthy = async () =>
      (await cluster.kubectl([...by, "get", "--raw", `/api/v1/nodes/${node}/proxy/healthz`])).stdout === "ok";
    await cluster.waitFor(`the tunnel of ${node}`, healthy, 60_000);
    assert.match(await cluster.mustKubectl([...by, "logs", podOf(node)]), /Started HTTP server on port 8080/);
    assert.equal(await cluster.mustKubectl([...by, "exec", podOf(node), "--", "hostname"]), `${podOf(node)}\n`);
    const metrics = await cluster.mustKubectl([...by, "get", "--raw", `/api/v1/nodes/${node}/proxy/metrics/resource`]);
    const measured = [...metrics.matchAll(/^pod_memory_working_set_bytes\{.*?pod="(.*?)"/gm)].map(([, pod]) => pod);
    assert.ok(measured.includes(podOf(node)), `${node} measures ${measured.join()}`);
    const foreign = measured.filter((pod) => pod?.startsWith("on-") && pod !== podOf(node));
    assert.deepEqual(foreign, [], node);
    const port = firstLocalPort + index;
    await using way = converse(cluster.startKubectl([...by, "port-forward", podOf(node), `${port}:${serverPort}`]));
    await way.says("Forwarding from 127.0.0.1", 30_000);
    const ask = ["curl", "--silent", "--show-error", "--max-time", "20", `http://127.0.0.1:${port}/hostname`];
    assert.equal(await must(networkArgv(cluster.layout, ask)), podOf(node));
  };
  await Promise.all(nodes.map(reach));
}
