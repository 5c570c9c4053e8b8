import { ignoreCode } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { cgroupMount } from "./cgroup-inheritance.ts";
import { groupUsage, type MemoryUsage } from "./cgroup-usage.ts";
import { parseMeminfo } from "./facts.ts";

/** The target's current memory and process usage. */
export interface HostUsage {
  /** Usage of the root cgroup including inactive files, bytes; absent with v2, whose root has no counter that the kernel can
   *  watch. */
  readonly usageBytes?: number;
  /** Working set: the root cgroup's usage minus inactive files, bytes. */
  readonly workingSetBytes: number;
  readonly memoryBytes: number;
  readonly processes: number;
}

/** @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals */
export async function readUsage(host: Pick<Host, "fs">, signal: AbortSignal): Promise<HostUsage> {
  const read = reader(host, signal);
  const ofRoot = (version: 1 | 2, names: readonly string[]) =>
    ignoreCode(memoryOf(read, version, "", names), "not_found", "permission_denied");
  const [meminfo, loadavg, root, unified] = await Promise.all([
    read("/proc/meminfo"),
    read("/proc/loadavg"),
    ofRoot(1, usageFiles[1]),
    ofRoot(2, ["memory.stat"]),
  ]);
  const memory = parseMeminfo(meminfo);
  return {
    ...(root && { usageBytes: root.usage }),
    workingSetBytes: (root ?? unified)?.workingSet ?? withoutCgroup(memory),
    memoryBytes: memory["MemTotal"] ?? 0,
    processes: Number(/\/(\d+) /.exec(loadavg)?.[1] ?? 0),
  };
}

/** Memory of a cgroup and its descendants, bytes. */
export interface GroupMemory {
  readonly usageBytes: number;
  readonly workingSetBytes: number;
  readonly limitBytes: number;
}

/** Reads the memory of a cgroup; undefined if it has no limit or does not exist.
 *  @param path from the root of the hierarchy, such as `/kubepods`. */
export async function readGroupMemory(
  host: Pick<Host, "fs">,
  version: 1 | 2,
  path: string,
  signal: AbortSignal,
): Promise<GroupMemory | undefined> {
  const files = [...usageFiles[version], limitFile[version]];
  const memory = await ignoreCode(memoryOf(reader(host, signal), version, path, files), "not_found");
  if (memory?.limit === undefined) return undefined;
  return { usageBytes: memory.usage, limitBytes: memory.limit, workingSetBytes: memory.workingSet };
}

type ReadFile = (path: string) => Promise<string>;

function reader(host: Pick<Host, "fs">, signal: AbortSignal): ReadFile {
  return async (path) => (await host.fs.readFile(path, { signal })).toString("utf8");
}

const usageFiles = { 1: ["memory.usage_in_bytes", "memory.stat"], 2: ["memory.current", "memory.stat"] } as const;
const limitFile = { 1: "memory.limit_in_bytes", 2: "memory.max" } as const;

async function memoryOf(
  read: ReadFile,
  version: 1 | 2,
  path: string,
  names: readonly string[],
): Promise<MemoryUsage | undefined> {
  const directory = version === 2 ? `${cgroupMount}${path}` : `${cgroupMount}/memory${path}`;
  const files = names.map(async (name) => [name, (await read(`${directory}/${name}`)).trim()] as const);
  return groupUsage(new Map(await Promise.all(files)), version).memory;
}

function withoutCgroup(memory: Readonly<Record<string, number>>): number {
  const used = (memory["MemTotal"] ?? 0) - (memory["MemFree"] ?? 0);
  return Math.max(0, used - (memory["Inactive(file)"] ?? 0));
}
