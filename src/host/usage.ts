import { unlessCode } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { parseMeminfo } from "./facts.ts";

/** The target's current memory and process usage. */
export interface HostUsage {
  /** Working set: the root cgroup's usage less its inactive files, bytes. */
  readonly workingSetBytes: number;
  readonly memoryBytes: number;
  readonly processes: number;
}

/** @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals */
export async function readUsage(host: Host, signal: AbortSignal): Promise<HostUsage> {
  const read = async (path: string) => (await host.fs.readFile(path, { signal })).toString("utf8");
  const [meminfo, loadavg] = await Promise.all([read("/proc/meminfo"), read("/proc/loadavg")]);
  const memory = parseMeminfo(meminfo);
  const workingSet = await unlessCode(rootCgroupWorkingSet(read), "not_found", "permission_denied");
  return {
    workingSetBytes: workingSet ?? withoutCgroup(memory),
    memoryBytes: memory["MemTotal"] ?? 0,
    processes: Number(/\/(\d+) /.exec(loadavg)?.[1] ?? 0),
  };
}

/** The working set of cgroup v1's root; v2's root has no memory controller, and /proc/meminfo has the same figures. */
async function rootCgroupWorkingSet(read: (path: string) => Promise<string>): Promise<number> {
  const usage = Number(await read("/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  const inactive = Number(
    /^total_inactive_file (\d+)$/m.exec(await read("/sys/fs/cgroup/memory/memory.stat"))?.[1] ?? 0,
  );
  return Math.max(0, usage - inactive);
}

function withoutCgroup(memory: Readonly<Record<string, number>>): number {
  const used = (memory["MemTotal"] ?? 0) - (memory["MemFree"] ?? 0);
  return Math.max(0, used - (memory["Inactive(file)"] ?? 0));
}
