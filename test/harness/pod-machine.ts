import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Pod } from "../../src/objects.ts";
import { cgroupHierarchies } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { hasGuest } from "../machines/guest-way.ts";
import { listProcesses, run, textOf } from "./processes.ts";

/** A target's processes and cgroups as this machine can read them. */
interface View {
  /** Its /proc, with the numbers of processes by which they are known here. */
  readonly proc: string;
  /** The mount points of its cgroup hierarchies. */
  readonly hierarchies: readonly string[];
}

/** Those of a guest are its own; those of any other target are this machine's. */
function viewOf({ layout, root }: Pick<Cluster, "layout" | "root">): View {
  return hasGuest(layout)
    ? { proc: join(root, "proc"), hierarchies: [join(root, "sys/fs/cgroup")] }
    : { proc: "/proc", hierarchies: cgroupHierarchies() };
}

/** All processes that run in a pod's cgroup, the sandbox's included. */
export function processesOf(cluster: Cluster, uid: string): number[] {
  const slice = `-pod${uid.replaceAll("-", "_")}.slice`;
  if (hasGuest(cluster.layout))
    return viewOf(cluster)
      .hierarchies.flatMap((hierarchy) => podSlices(join(hierarchy, "kubepods.slice"), slice))
      .flatMap(processesBelow);
  return listProcesses()
    .map(({ pid }) => pid)
    .filter((pid) => {
      const cgroups = textOf(`/proc/${pid}/cgroup`);
      return cgroups.includes(`/pod${uid}`) || cgroups.includes(slice);
    });
}

function podSlices(folder: string, name: string): string[] {
  return foldersIn(folder).flatMap((path) => (path.endsWith(name) ? [path] : podSlices(path, name)));
}

function processesBelow(cgroup: string): number[] {
  const own = textOf(join(cgroup, "cgroup.procs")).split("\n").filter(Boolean).map(Number);
  return [...own, ...foldersIn(cgroup).flatMap(processesBelow)];
}

function foldersIn(folder: string): string[] {
  try {
    const entries = readdirSync(folder, { withFileTypes: true });
    return entries.flatMap((entry) => (entry.isDirectory() ? [join(folder, entry.name)] : []));
  } catch {
    return [];
  }
}

/** The process that holds a pod's sandbox. */
export function sandboxProcess(cluster: Cluster, uid: string): number {
  const { proc } = viewOf(cluster);
  const found = processesOf(cluster, uid).find((pid) => textOf(`${proc}/${pid}/cmdline`).startsWith("/pause"));
  if (found === undefined) throw new Error(`pod ${uid} has no sandbox process`);
  return found;
}

/** Kills a process of the target at once, whoever its parent is. */
export async function killOnTarget({ layout, runInside }: Cluster, pid: number): Promise<void> {
  const argv = ["kill", "-9", String(pid)];
  const { code, stderr } = await (hasGuest(layout) ? runInside(argv) : run(argv));
  if (code !== 0) throw new Error(`process ${pid} cannot be killed: ${stderr}`);
}

/** Whether the target still has a process of that number. */
export function isOnTarget(cluster: Cluster, pid: number): boolean {
  return existsSync(join(viewOf(cluster).proc, String(pid)));
}

/** The content of the first of these files that a process's cgroups have; `levelsUp` goes towards the root. A file's name tells
 *  the controller, and version 1 from 2. */
export function cgroupValue(cluster: Cluster, pid: number, files: readonly string[], levelsUp = 0): string {
  const folders = cgroupsOf(cluster, pid).map((path) => join(path, ...Array<string>(levelsUp).fill("..")));
  for (const file of files) {
    const found = viewOf(cluster)
      .hierarchies.flatMap((hierarchy) => folders.map((folder) => join(hierarchy, folder, file)))
      .find(existsSync);
    if (found) return readFileSync(found, "utf8").trim();
  }
  throw new Error(`process ${pid} has no cgroup file ${files.join(", ")}`);
}

/** A line of /proc/PID/status of a process of the target, such as `Mems_allowed_list`. */
export function processStatus(cluster: Cluster, pid: number, field: string): string {
  const status = readFileSync(join(viewOf(cluster).proc, String(pid), "status"), "utf8");
  return new RegExp(`^${field}:\\s*(.*)$`, "m").exec(status)?.[1] ?? "";
}

/** Whether the target's cgroups are those of version 2 alone: beside version 1 it has no controllers. */
export function isCgroupV2(cluster: Cluster): boolean {
  return viewOf(cluster).hierarchies.every((hierarchy) => existsSync(join(hierarchy, "cgroup.controllers")));
}

/** The directories of a cgroup of the target below which its pods are, one for each hierarchy.
 *  @param path from the root of a machine with a systemd, else from the cluster's own cgroup. */
export function cgroupFolders(cluster: Cluster, path: string): string[] {
  const above = hasGuest(cluster.layout) ? "" : cluster.layout.cgroup;
  return viewOf(cluster).hierarchies.map((hierarchy) => join(hierarchy, above, path));
}

/** The cgroups of a process, a path for each hierarchy. */
export function cgroupsOf(cluster: Pick<Cluster, "layout" | "root">, pid: number): string[] {
  return textOf(`${viewOf(cluster).proc}/${pid}/cgroup`)
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
  return mountsOf(cluster).filter((path) => path.includes(`/pods/${metadata.uid}/`));
}

/** Where something is mounted on a cluster's machine. */
export function mountsOf({ layout, root }: Pick<Cluster, "layout" | "root">): string[] {
  const lines = textOf(hasGuest(layout) ? join(root, "proc/1/mountinfo") : join(root, "..", "mountinfo"))
    .trim()
    .split("\n");
  return lines.map((line) => line.split(" ")[4] ?? "");
}
