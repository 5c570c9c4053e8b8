import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Layout } from "./state.ts";
import { waitFor } from "./wait.ts";

/** Makes the cgroup below which an agent puts its pods; a kubelet wants it there before it starts. */
export function createCgroup(layout: Layout): void {
  createMachineCgroup(layout);
  for (const hierarchy of cgroupHierarchies()) passControllersOn(join(hierarchy, layout.cgroup));
}

/** Makes the cgroup that is to be the root of a machine with an init of its own: that one passes controllers on by itself, once it
 *  has moved out of it. */
export function createMachineCgroup(layout: Layout): void {
  for (const hierarchy of cgroupHierarchies()) {
    const cgroup = join(hierarchy, layout.cgroup);
    mkdirSync(cgroup, { recursive: true });
    inheritCpuset(hierarchy, cgroup);
  }
}

/** Lines of a shell that puts itself into the cluster's cgroup of each hierarchy. */
export function enterCgroups(layout: Layout): string[] {
  return cgroupHierarchies().map((hierarchy) => `echo 0 > ${join(hierarchy, layout.cgroup)}/cgroup.procs`);
}

/** A new v1 cpuset is empty, and takes no process before it has CPUs and memory nodes. */
function inheritCpuset(hierarchy: string, cgroup: string): void {
  for (const file of ["cpuset.cpus", "cpuset.mems"]) {
    const inherited = readIfThere(join(hierarchy, file));
    if (inherited !== undefined) writeFileSync(join(cgroup, file), inherited);
  }
}

/** In v2 a controller reaches below a cgroup only where the cgroup says so. */
function passControllersOn(cgroup: string): void {
  const controllers =
    readIfThere(join(cgroup, "cgroup.controllers"))
      ?.trim()
      .split(" ")
      .filter((name) => name !== "") ?? [];
  if (controllers.length > 0)
    writeFileSync(join(cgroup, "cgroup.subtree_control"), controllers.map((name) => `+${name}`).join(" "));
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** Removes the cluster's cgroup with all below it, and those of `containers` with the parents that this leaves empty. */
export async function removeCgroups(layout: Layout, containers: readonly string[]): Promise<void> {
  const hierarchies = cgroupHierarchies();
  await waitFor(
    `the removal of the cgroups of cluster ${layout.name}`,
    () => {
      for (const hierarchy of hierarchies) removeTree(join(hierarchy, layout.cgroup));
      for (const path of containers) removeUpwards(path, hierarchies);
      return hierarchies.every((hierarchy) => !existsSync(join(hierarchy, layout.cgroup)));
    },
    { timeoutMs: 10_000, everyMs: 100 },
  );
}

/** The mount points of all cgroup hierarchies of this machine, v1 and v2. */
export function cgroupHierarchies(): string[] {
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  return mounts
    .filter((line) => / - cgroup2? /.test(line))
    .map((line) => line.split(" ")[4] ?? "")
    .filter((path) => path !== "");
}

function removeTree(cgroup: string): void {
  if (!existsSync(cgroup)) return;
  for (const entry of readdirSync(cgroup, { withFileTypes: true }))
    if (entry.isDirectory()) removeTree(join(cgroup, entry.name));
  removeEmpty(cgroup);
}

function removeUpwards(path: string, hierarchies: readonly string[]): void {
  for (let current = path; current.length > 1 && !hierarchies.includes(current); current = join(current, ".."))
    if (!removeEmpty(current)) return;
}

/** Whether the cgroup is gone. One in use stays, and is not an error. */
function removeEmpty(cgroup: string): boolean {
  try {
    rmdirSync(cgroup);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT";
  }
}
