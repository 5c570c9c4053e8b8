import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Pod } from "../../src/objects.ts";
import { cgroupHierarchies } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { listProcesses } from "./processes.ts";

/** All processes that run in a pod's cgroup, the sandbox's included. */
export function processesOf(uid: string): number[] {
  const slice = `-pod${uid.replaceAll("-", "_")}.slice`;
  return listProcesses()
    .map(({ pid }) => pid)
    .filter((pid) => {
      const cgroups = textOf(`/proc/${pid}/cgroup`);
      return cgroups.includes(`/pod${uid}`) || cgroups.includes(slice);
    });
}

/** The process that holds a pod's sandbox. */
export function sandboxProcess(uid: string): number {
  const found = processesOf(uid).find((pid) => textOf(`/proc/${pid}/cmdline`).startsWith("/pause"));
  if (found === undefined) throw new Error(`pod ${uid} has no sandbox process`);
  return found;
}

/** The content of the first of these files that a process's cgroups have; `levelsUp` goes towards the root. A file's name tells
 *  the controller, and version 1 from 2. */
export function cgroupValue(pid: number, files: readonly string[], levelsUp = 0): string {
  const folders = cgroupsOf(pid).map((path) => join(path, ...Array<string>(levelsUp).fill("..")));
  for (const file of files) {
    const found = cgroupHierarchies()
      .flatMap((hierarchy) => folders.map((folder) => join(hierarchy, folder, file)))
      .find(existsSync);
    if (found) return readFileSync(found, "utf8").trim();
  }
  throw new Error(`process ${pid} has no cgroup file ${files.join(", ")}`);
}

/** The cgroups of a process, a path for each hierarchy. */
export function cgroupsOf(pid: number): string[] {
  return textOf(`/proc/${pid}/cgroup`)
    .trim()
    .split("\n")
    .map((line) => line.split(":").slice(2).join(":"));
}

/** The folder of one of a pod's volumes on the machine. */
export function volumeFolder({ layout, root }: Cluster, pod: Pod, kind: string, volume: string): string {
  return join(root, layout.kubeletRoot, "pods", pod.metadata.uid, "volumes", `kubernetes.io~${kind}`, volume);
}

/** A pod's own folder on the machine. */
export function podFolder({ layout, root }: Cluster, { metadata }: Pod): string {
  return join(root, layout.kubeletRoot, "pods", metadata.uid);
}

/** Where something is mounted below a pod's folder, as the machine's own programs see it. */
export function podMounts(cluster: Cluster, { metadata }: Pod): string[] {
  const holder = /^\/proc\/\d+/.exec(cluster.root)?.[0] ?? "";
  return textOf(`${holder}/mountinfo`)
    .split("\n")
    .map((line) => line.split(" ")[4] ?? "")
    .filter((path) => path.includes(`/pods/${metadata.uid}/`));
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
