import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { cgroupHierarchies } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { dockerEngine } from "./docker-engine.ts";
import { foldersBelow, shims } from "./docker-traces.ts";
import { mountsOf } from "./pod-machine.ts";
import { hasDocker } from "./runtime-daemon.ts";
import { runtimeLenses } from "./runtime-lens.ts";

/** All that a node leaves on a cluster's machine, whatever its provider, a line each: what its runtime has, mounts, cgroups, the
 *  files where a node has some, network interfaces of pods and rules for them. The bridge that containerd's CNI plugin makes is the plugin's, the
 *  cgroup above Docker's own containers the daemon's. */
export async function targetTraces(cluster: Cluster): Promise<Set<string>> {
  const { layout, root } = cluster;
  const links = await cluster.runInside(["ip", "-oneline", "link", "show", "type", "veth"]);
  const rules = await cluster.runInside(["iptables-save", "-t", "nat"]);
  const folders = [layout.kubeletRoot, layout.podLogs, join(root, "var/log/containers"), join(root, "var/log/pods")];
  return new Set([
    ...(await runtimeTraces(cluster)),
    ...links.stdout.split("\n").flatMap((line) => /^\d+: ([^:@ ]+)/.exec(line)?.[1] ?? []),
    ...rules.stdout.split("\n").filter((rule) => rule.includes("graftlet.dev/")),
    // Network namespaces of other clusters come and go.
    ...mountsOf(cluster).flatMap((path) => (path.startsWith("/run/netns/graftlet-") ? [] : `mount ${path}`)),
    ...cgroupHierarchies()
      .flatMap((hierarchy) => foldersBelow(join(hierarchy, layout.cgroup)))
      .filter((line) => !line.endsWith("/docker") && !isOwnUnit(line)),
    ...folders.flatMap(below),
    ...shims(cluster),
  ]);
}

/** Whether a cgroup is one that a systemd has for itself and its services. */
function isOwnUnit(line: string): boolean {
  return /\/(init\.scope|system\.slice|user\.slice|[^/]+\.mount)(\/|$)/.test(line);
}

async function runtimeTraces(cluster: Cluster): Promise<string[]> {
  if (hasDocker(cluster.provider)) {
    const engine = dockerEngine(cluster);
    const [containers, networks] = await Promise.all([engine.containers(), engine.networks()]);
    return [
      ...containers.map(({ Names, State }) => `container ${Names.join(" ")} ${State}`),
      ...networks.map(({ Name }) => `network ${Name}`),
    ];
  }
  await using lens = runtimeLenses[cluster.provider](cluster);
  const signal = AbortSignal.timeout(20_000);
  const [sandboxes, containers] = await Promise.all([lens.sandboxes(signal), lens.containers(signal)]);
  return [
    ...sandboxes.map(({ id, ready }) => `sandbox ${id} ${ready}`),
    ...containers.map(({ id, state }) => `container ${id} ${state}`),
  ];
}

function below(folder: string): string[] {
  if (!existsSync(folder)) return [];
  return [folder, ...readdirSync(folder, { recursive: true }).map((name) => join(folder, String(name)))];
}
