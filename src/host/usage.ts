import { unlessCode } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { cgroupMount } from "./cgroup-inheritance.ts";
import { parseMeminfo } from "./facts.ts";

/** The target's current memory and process usage. */
export interface HostUsage {
  /** Working set: the root cgroup's usage less its inactive files, bytes. */
  readonly workingSetBytes: number;
  readonly memoryBytes: number;
  readonly processes: number;
}

/** @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals */
export async function readUsage(host: Pick<Host, "fs">, signal: AbortSignal): Promise<HostUsage> {
  const read = reader(host, signal);
  const [meminfo, loadavg, workingSet] = await Promise.all([
    read("/proc/meminfo"),
    read("/proc/loadavg"),
    unlessCode(workingSetV1(read, ""), "not_found", "permission_denied"),
  ]);
  const memory = parseMeminfo(meminfo);
  return {
    workingSetBytes: workingSet ?? withoutCgroup(memory),
    memoryBytes: memory["MemTotal"] ?? 0,
    processes: Number(/\/(\d+) /.exec(loadavg)?.[1] ?? 0),
  };
}

/** Memory of a cgroup and all below it, bytes. */
export interface GroupMemory {
  readonly workingSetBytes: number;
  readonly limitBytes: number;
}

/** Memory of a cgroup; undefined where it is not limited, or is not there.
 *  @param path from the root of the hierarchy, such as `/kubepods`. */
export async function readGroupMemory(
  host: Pick<Host, "fs">,
  version: 1 | 2,
  path: string,
  signal: AbortSignal,
): Promise<GroupMemory | undefined> {
  const read = reader(host, signal);
  const limitFile = version === 2 ? `${path}/memory.max` : `/memory${path}/memory.limit_in_bytes`;
  const known = await unlessCode(
    Promise.all([
      read(`${cgroupMount}${limitFile}`),
      version === 2 ? workingSetV2(read, path) : workingSetV1(read, path),
    ]),
    "not_found",
  );
  if (!known) return undefined;
  const [limit, workingSetBytes] = [Number(known[0]), known[1]];
  return limit < unlimited ? { limitBytes: limit, workingSetBytes } : undefined;
}

type ReadFile = (path: string) => Promise<string>;

/** What version 1 shows for no limit, and more. (cadvisor counts from here on as no limit.) */
const unlimited = 2 ** 62;

function reader(host: Pick<Host, "fs">, signal: AbortSignal): ReadFile {
  return async (path) => (await host.fs.readFile(path, { signal })).toString("utf8");
}

/** The working set of a cgroup. Version 2's root has no memory controller, and /proc/meminfo has the same figures. */
function workingSetV1(read: ReadFile, path: string): Promise<number> {
  const directory = `${cgroupMount}/memory${path}`;
  return workingSet(read, [`${directory}/memory.usage_in_bytes`, `${directory}/memory.stat`], "total_inactive_file");
}

function workingSetV2(read: ReadFile, path: string): Promise<number> {
  const directory = `${cgroupMount}${path}`;
  return workingSet(read, [`${directory}/memory.current`, `${directory}/memory.stat`], "inactive_file");
}

async function workingSet(
  read: ReadFile,
  [usageFile, statFile]: readonly [usage: string, stat: string],
  inactive: string,
): Promise<number> {
  const [usage, stat] = await Promise.all([read(usageFile), read(statFile)]);
  return Math.max(0, Number(usage) - Number(new RegExp(`^${inactive} (\\d+)$`, "m").exec(stat)?.[1] ?? 0));
}

function withoutCgroup(memory: Readonly<Record<string, number>>): number {
  const used = (memory["MemTotal"] ?? 0) - (memory["MemFree"] ?? 0);
  return Math.max(0, used - (memory["Inactive(file)"] ?? 0));
}
