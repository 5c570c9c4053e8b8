import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { cgroupHierarchies } from "./cgroups.ts";
import { listProcesses, textOf } from "./processes.ts";
import type { Layout } from "./state.ts";

/** Everything on this machine that names the cluster. */
export function traces(layout: Layout): string[] {
  const found = [layout.dir, layout.netns, ...cgroupHierarchies().map((path) => join(path, layout.cgroup))].filter(
    existsSync,
  );
  for (const line of readFileSync("/proc/self/mountinfo", "utf8").split("\n"))
    if (line.includes(layout.dir) || line.includes(layout.netnsName)) found.push(`mount ${line}`);
  for (const { pid } of listProcesses().filter((entry) => entry.pid !== process.pid)) {
    const command = textOf(`/proc/${pid}/cmdline`).replaceAll("\0", " ");
    if (command.includes(layout.dir) || command.includes(layout.netnsName)) found.push(`process ${pid} ${command}`);
    if (textOf(`/proc/${pid}/cgroup`).includes(`${layout.cgroup}/`))
      found.push(`process ${pid} in cgroup ${layout.cgroup}`);
  }
  return found;
}
