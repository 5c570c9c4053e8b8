import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import type { Node, NodeCondition } from "../../src/objects.ts";
import { type Agent, kubeletConfiguration, startGraftletWith } from "./agent.ts";
import { createCgroup } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { createDaemons } from "./daemons.ts";
import { registryArgv } from "./registry.ts";
import { runtimeDaemons } from "./runtime-daemon.ts";
import { readState } from "./state.ts";

/** A node of a GraftletConfiguration. */
export interface NodeEntry {
  readonly name: string;
  readonly provider: string;
  readonly providerConfig?: object;
  readonly kubeletConfiguration?: object;
  readonly rootDir?: string;
  readonly port?: number;
}

export interface SeveralOptions {
  readonly nodes: readonly NodeEntry[];
  /** Fields beside `nodes`. */
  readonly fields?: object;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts one graftlet for several nodes on the cluster's machine, each with the identity of a node, and waits for nothing. It
 *  knows the provider `fake` as well, whose machines are in memory. Its log is its own. */
export async function startSeveral(cluster: Cluster, name: string, options: SeveralOptions): Promise<Agent> {
  const { nodes, fields, args = [], env = {} } = options;
  const { layout } = cluster;
  const entries = await Promise.all(
    nodes.map(async (entry) => ({ ...entry, kubeconfig: await cluster.kubeconfigFor(entry.name) })),
  );
  const file = join(layout.dir, `${name}.yaml`);
  const kind = { apiVersion: "graftlet.dev/v1alpha1", kind: "GraftletConfiguration" };
  writeFileSync(file, stringify({ ...kind, ...fields, nodes: entries }));
  const flags = [`--nodes=${file}`, `--cert-dir=${join(layout.dir, `${name}-pki`)}`, ...args];
  const onTarget = { ...cluster, spawnAtAgent: cluster.spawnInside };
  return startGraftletWith(onTarget, name, flags, env, "test/harness/fake-nodes-entry.ts");
}

/** A node's Ready condition; undefined while there is none. */
export async function readyCondition(cluster: Cluster, name: string): Promise<NodeCondition | undefined> {
  return (await cluster.get<Node>("node", name))?.status?.conditions?.find(({ type }) => type === "Ready");
}

/** Waits until all these nodes are Ready. */
export async function allReady(cluster: Cluster, names: readonly string[], agent: Agent): Promise<void> {
  const unready = async (): Promise<string[]> => {
    const { items } = JSON.parse(await cluster.mustKubectl(["get", "nodes", "--output=json"])) as { items: Node[] };
    const ready = items.filter(({ status }) =>
      status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True"),
    );
    const standing = new Set(ready.map(({ metadata }) => metadata.name));
    return names.filter((name) => !standing.has(name));
  };
  await cluster.waitFor("all nodes to be Ready", async () => (await unready()).length === 0, {
    timeoutMs: 120_000 + names.length * 300,
    everyMs: 500 + names.length * 5,
    explain: async () => `${(await unready()).join()}\n${agent.log().slice(-2000)}`,
  });
}

/** The lines of an agent's log that are no JSON, or say nothing of a node though they are not the process's own. */
export function strayLines(agent: Agent): string[] {
  const ofProcess = ["graftlet is starting", "some kubelet defaults are not supported", "healthz listening"];
  return agent
    .log()
    .split("\n")
    .filter((line) => line !== "")
    .filter((line) => {
      if (!line.startsWith("{")) return true;
      const { node, msg } = JSON.parse(line) as { node?: string; msg: string };
      return typeof node !== "string" && !ofProcess.includes(msg);
    });
}

/** Starts a Docker Engine beside the containerd of a cluster's machine. @returns its socket. */
export async function addDockerEngine({ layout, tools, name }: Cluster): Promise<string> {
  const holder = readState(layout)?.holder;
  if (!holder) throw new Error(`cluster ${name} has no holder`);
  const runtime = runtimeDaemons.docker;
  const daemons = createDaemons({ layout, tools, holder, runtime });
  runtime.writeConfig(layout);
  await daemons.start("registry-plain", registryArgv(tools, layout, "plain"));
  await daemons.startRuntime();
  return runtime.socket(layout);
}

/** A node of several on one machine, with folders and a cgroup of its own. */
export function entryApart(
  cluster: Cluster,
  { name, provider, providerConfig }: Pick<NodeEntry, "name" | "provider" | "providerConfig">,
): NodeEntry {
  const { layout } = cluster;
  const folder = join(layout.dir, name);
  const cgroupRoot = join(layout.cgroup, name);
  createCgroup({ ...layout, cgroup: cgroupRoot });
  const own = { cgroupRoot, podLogsDir: `${folder}/logs`, staticPodPath: `${folder}/manifests` };
  return {
    name,
    provider,
    providerConfig,
    rootDir: `${folder}/kubelet`,
    kubeletConfiguration: { ...kubeletConfiguration(cluster), ...own },
  };
}
