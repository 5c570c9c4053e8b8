import { existsSync, readFileSync, readdirSync, readlinkSync } from "node:fs";
import { basename, join } from "node:path";
import type { Pod } from "../../src/objects.ts";
import { cgroupHierarchies } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { firstProcessFile } from "./pods.ts";
import type { RuntimeLens, SeenContainer, SeenSandbox } from "./runtime-lens.ts";

/** A node at one moment, from all sides: what the API server says, what the runtime has, what lies on the machine. */
export interface Sight {
  /** The node's pods as the API server has them. */
  readonly pods: readonly Pod[];
  readonly sandboxes: readonly SeenSandbox[];
  /** Newest first. */
  readonly containers: readonly SeenContainer[];
  /** The first process of each running container, by container ID. */
  readonly processes: ReadonlyMap<string, string>;
  /** What the machine keeps for a pod, by the pod's UID: directories, mounts, cgroups. */
  readonly traces: ReadonlyMap<string, readonly string[]>;
  /** Links to container logs that lead nowhere. */
  readonly brokenLinks: readonly string[];
}

/** Looks at a node from all sides: the API server before and after everything else, so that `undefined` means that it changed
 *  meanwhile. */
export async function lookAt(cluster: Cluster, lens: RuntimeLens, signal: AbortSignal): Promise<Sight | undefined> {
  const before = await podsOf(cluster);
  const [sandboxes, listed] = await Promise.all([lens.sandboxes(signal), lens.containers(signal)]);
  const containers = listed.sort((a, b) => b.createdAt - a.createdAt);
  const sight = {
    sandboxes,
    containers,
    processes: processesOf(cluster, containers),
    traces: tracesOf(cluster),
    brokenLinks: brokenLinksOf(cluster),
  };
  const after = await podsOf(cluster);
  return versionsOf(before) === versionsOf(after) ? { pods: after, ...sight } : undefined;
}

async function podsOf({ mustKubectl, nodeName }: Cluster): Promise<readonly Pod[]> {
  const text = await mustKubectl([
    "get",
    "pods",
    "--all-namespaces",
    `--field-selector=spec.nodeName=${nodeName}`,
    "--output=json",
  ]);
  return (JSON.parse(text) as { items: Pod[] }).items;
}

function versionsOf(pods: readonly Pod[]): string {
  return pods
    .map(({ metadata }) => `${metadata.uid}=${metadata.resourceVersion}`)
    .sort()
    .join(" ");
}

function processesOf(cluster: Cluster, containers: readonly SeenContainer[]): Map<string, string> {
  return new Map(
    containers.flatMap(({ id }) => {
      const file = firstProcessFile(cluster, id);
      return existsSync(file) ? [[id, readFileSync(file, "utf8").trim()] as const] : [];
    }),
  );
}

const uidPattern = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/;

function tracesOf({ layout, root }: Cluster): Map<string, string[]> {
  const traces = new Map<string, string[]>();
  const note = (text: string, what: string) => {
    const uid = uidPattern.exec(text)?.[0];
    if (uid !== undefined) traces.set(uid, [...(traces.get(uid) ?? []), what]);
  };
  for (const name of namesIn(join(layout.kubeletRoot, "pods")))
    note(name, `directory ${join(layout.kubeletRoot, "pods", name)}`);
  for (const name of namesIn(layout.podLogs)) note(name, `logs ${join(layout.podLogs, name)}`);
  for (const line of readFileSync(join(root, "..", "mountinfo"), "utf8").split("\n")) {
    const path = line.split(" ")[4] ?? "";
    if (path.startsWith(`${layout.kubeletRoot}/`)) note(path, `mount ${path}`);
  }
  for (const cgroup of cgroupHierarchies().flatMap((hierarchy) => podCgroups(join(hierarchy, layout.cgroup))))
    note(basename(cgroup).replaceAll("_", "-"), `cgroup ${cgroup}`);
  return traces;
}

/** The cgroups of pods below one of QoS classes, at whatever depth: folders of the agent's making, or slices. */
function podCgroups(folder: string): string[] {
  return foldersIn(folder).flatMap((name) =>
    /^pod|-pod[0-9a-f_]{36}\.slice$/.test(name) ? [join(folder, name)] : podCgroups(join(folder, name)),
  );
}

function brokenLinksOf({ root }: Cluster): string[] {
  const folder = join(root, "var/log/containers");
  return namesIn(folder).filter((name) => !existsSync(join(root, readlinkSync(join(folder, name)))));
}

function namesIn(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder) : [];
}

function foldersIn(folder: string): string[] {
  return existsSync(folder)
    ? readdirSync(folder, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map(({ name }) => name)
    : [];
}
