import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { cgroupHierarchies } from "./cgroups.ts";
import { mountsOf } from "./pod-machine.ts";
import type { Cluster } from "./cluster.ts";
import { dockerExecRoot } from "./docker.ts";
import type { DockerEngine } from "./docker-engine.ts";
import { textOf } from "./processes.ts";
import { readState } from "./state.ts";
import { clusterProcesses } from "./teardown.ts";

/** All that pods leave on a cluster's machine and on its Docker Engine, a line each. */
export async function dockerTraces(cluster: Cluster, engine: DockerEngine): Promise<Set<string>> {
  const [containers, networks, links] = await Promise.all([
    engine.containers(),
    engine.networks(),
    cluster.runInside(["ip", "-oneline", "link"]),
  ]);
  return new Set([
    ...containers.map(({ Id, Names, State }) => `container ${Names.join(" ")} ${State} ${Id}`),
    ...networks.map(({ Name, Id }) => `network ${Name} ${Id}`),
    ...links.stdout.split("\n").flatMap(
      (line) =>
        /^\d+: ([^:@ ]+)/
          .exec(line)
          ?.slice(1)
          .map((name) => `link ${name}`) ?? [],
    ),
    ...mountsOf(cluster).map((path) => `mount ${path}`),
    ...cgroupHierarchies().flatMap((hierarchy) => foldersBelow(join(hierarchy, cluster.layout.cgroup))),
    ...filesOf(cluster),
    ...shims(cluster),
  ]);
}

/** Where pods and containers have folders or links of their own. */
function filesOf({ layout, root }: Cluster): string[] {
  const folders = [
    join(layout.kubeletRoot, "pods"),
    join(layout.kubeletRoot, "graftlet"),
    layout.podLogs,
    join(root, "var/log/containers"),
    ...["containers", "overlay2", "overlay2/l", "image/overlay2/layerdb/mounts", "network/files", "volumes"].map(
      (name) => join(layout.docker, "data", name),
    ),
    ...["netns", "runtime-runc/moby", "containerd/daemon/io.containerd.runtime.v2.task/moby", "libnetwork"].map(
      (name) => join(root, dockerExecRoot(layout), name),
    ),
  ];
  return folders.flatMap((folder) => namesIn(folder).map((name) => `file ${join(folder, name)}`));
}

/** The command lines of what keeps containers on a cluster's machine. */
export function shims({ layout }: Cluster): string[] {
  return clusterProcesses(layout, readState(layout)?.holder).flatMap(({ pid }) => {
    const command = textOf(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
    return command.includes("containerd-shim") ? [`process ${command}`] : [];
  });
}

/** The cgroups below one, a line each. */
export function foldersBelow(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const below = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return below.flatMap(({ name }) => [`cgroup ${join(folder, name)}`, ...foldersBelow(join(folder, name))]);
}

function namesIn(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder) : [];
}
