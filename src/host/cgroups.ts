import { CodedError, hasCode, throwIfAborted, unlessGone } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";
import { exists, swapFileV2 } from "./exists.ts";
import { listMounts } from "./mounts.ts";
import { inodes, killProcesses } from "./cgroup-commands.ts";
import { faultV1, faultV2, type NamedCgroup } from "./cgroup-fault.ts";
import { cgroupMount as mount, cpusets, handedDown } from "./cgroup-inheritance.ts";

/** Limits of a cgroup; undefined ones stay unchanged. */
export interface CgroupLimits {
  readonly cpuShares?: number;
  /** Microseconds of CPU time in each period; -1 for no limit. */
  readonly cpuQuotaUs?: number;
  readonly cpuPeriodUs?: number;
  readonly memoryBytes?: number;
  /** Memory that is kept for it, from anybody or as long as others have some to spare; ignored with version 1. */
  readonly memoryMinBytes?: number;
  readonly memoryLowBytes?: number;
  /** Swap, with version 2; ignored where the target does not limit it. */
  readonly swapBytes?: number;
  /** Ignored where the target does not limit process IDs. */
  readonly pids?: number;
  /** CPUs as a cpuset lists them, such as `0-3,8`. */
  readonly cpus?: string;
  /** Bytes of huge pages by their size as cgroups name it, such as `2MB`; ignored where the target does not limit huge pages. */
  readonly hugepages?: Readonly<Record<string, number>>;
}

/** The target's cgroup hierarchies: one for each controller with version 1, a single one with version 2. */
export interface Cgroups {
  /** The target can limit process IDs. */
  readonly limitsPids: boolean;
  /** Creates a cgroup and its ancestors, and sets its limits. @param path from the root, such as `/kubepods/burstable`. */
  ensure(path: string, limits: CgroupLimits, signal: AbortSignal): Promise<void>;
  /** The same for a cgroup without processes, in a single change of files when its ancestors were created before.
   *  @returns false when ancestors that had been made here were not found as they had been left. */
  make(path: string, limits: CgroupLimits, signal: AbortSignal): Promise<boolean>;
  /** Removes cgroups without processes, and their descendants; a missing one is success. */
  remove(paths: readonly string[], signal: AbortSignal): Promise<void>;
  /** Why limits cannot be set in a cgroup that others make, in the kubelet's words; undefined when they can. */
  fault(cgroup: NamedCgroup, signal: AbortSignal): Promise<string | undefined>;
  /** Names of a cgroup's children; none for a missing cgroup. */
  children(path: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Kills all processes in cgroups and their descendants, and waits for their end, two seconds at most.
   *  @returns the numbers of those that were there. */
  kill(paths: readonly string[], signal: AbortSignal): Promise<readonly number[]>;
  /** Marks by which cgroups differ from others that are made at their paths later, by path; none for a missing one. */
  identities(paths: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, string>>;
}

/** Hierarchies of version 1 in which the kubelet creates a pod's cgroup; and version 2's on hybrid machines, since runc puts
 *  containers there too and leaves their parents behind. */
const controllers = [
  "cpu",
  "cpuacct",
  "cpuset",
  "memory",
  "pids",
  "blkio",
  "hugetlb",
  "devices",
  "freezer",
  "net_cls",
  "net_prio",
  "perf_event",
  "systemd",
  "unified",
];

/** Of those, the ones that a cgroup must be in to be there. */
const limiting: readonly string[] = ["cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"];

/** @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export async function openCgroups(host: Host, version: 1 | 2, signal: AbortSignal): Promise<Cgroups> {
  const roots = version === 2 ? [mount] : await hierarchies(host, signal);
  const hugetlb = version === 1 ? roots.includes(`${mount}/hugetlb`) : await limitsHugePages(host, signal);
  const limitsPids = version === 2 || roots.includes(`${mount}/pids`);
  const limitsSwap = version === 2 && (await exists(host.fs, await swapFileV2(host.fs, signal), signal));
  const limitsOf = (path: string, { hugepages, pids, swapBytes, ...limits }: CgroupLimits): readonly FileChange[] => {
    const all = {
      ...limits,
      ...(limitsSwap && swapBytes !== undefined && { swapBytes }),
      ...(hugetlb && hugepages && { hugepages }),
      ...(limitsPids && pids !== undefined && { pids }),
    };
    return version === 2 ? limitsV2(path, all) : limitsV1(path, all);
  };
  const inheritance = version === 2 ? handedDown(host) : cpusets(host, roots);
  const directories = (path: string, parents: boolean) =>
    roots.map((root): FileChange => ({ do: "mkdir", path: root + path, parents }));
  const stepByStep = async (path: string, limits: CgroupLimits, stop: AbortSignal) => {
    await host.fs.apply(directories(path, true), stop);
    await inheritance.settle(path, stop);
    await host.fs.apply(limitsOf(path, limits), stop);
    // Its descendants take over what it has from now on.
    if (limits.cpus !== undefined) inheritance.forget(path);
  };
  /** @param changes everything but the limits, when known to be sufficient.
   *  @returns false when they were not. */
  const atOnce = async (
    path: string,
    changes: readonly FileChange[] | undefined,
    limits: CgroupLimits,
    stop: AbortSignal,
  ): Promise<boolean> => {
    try {
      await (changes ? host.fs.apply([...changes, ...limitsOf(path, limits)], stop) : stepByStep(path, limits, stop));
      return true;
    } catch (error) {
      if (!changes) throw error;
      throwIfAborted(stop);
      // The ancestors have changed: repeat step by step, which works or shows the reason.
      inheritance.forget(path);
      await stepByStep(path, limits, stop);
      return false;
    }
  };
  const everywhere = (paths: readonly string[]) => paths.flatMap((path) => roots.map((root) => root + path));
  return {
    limitsPids,
    async ensure(path, limits, stop) {
      const isSettled = inheritance.has(path) && limits.cpus === undefined;
      await atOnce(path, isSettled ? [] : undefined, limits, stop);
    },
    make(path, limits, stop) {
      const inherited = inheritance.ofNew(path);
      return atOnce(path, inherited && [...directories(path, false), ...inherited], limits, stop);
    },
    async remove(paths, stop) {
      await removeTrees(host, everywhere(paths), stop);
      paths.forEach(inheritance.gone);
    },
    fault: (cgroup, stop) =>
      version === 2 ? faultV2(host, cgroup, stop) : faultV1(host, roots.filter(isLimiting), cgroup, stop),
    async children(path, stop) {
      const names = new Set<string>();
      for (const root of roots) for (const name of await subgroups(host, root + path, stop)) names.add(name);
      return [...names];
    },
    kill: (paths, stop) => killProcesses(host, everywhere(paths), stop),
    identities: (paths, stop) => identitiesIn(host, roots.find(isLimiting) ?? mount, paths, stop),
  };
}

/** @param root of the hierarchy in which they are looked at. */
async function identitiesIn(host: Host, root: string, paths: readonly string[], signal: AbortSignal) {
  const directories = paths.map((path) => root + path);
  const found = await inodes(host, directories, signal);
  return new Map([...found].map(([path, inode]) => [path.slice(root.length), inode]));
}

/** A hierarchy whose cgroups the kubelet looks for; there may be others. */
function isLimiting(root: string): boolean {
  return root === mount || limiting.some((name) => root === `${mount}/${name}`);
}

/** Those that are mounted: systemd leaves a directory where it could not mount one. One mount may have several controllers and
 *  be known by links of their names. */
async function hierarchies(host: Host, signal: AbortSignal): Promise<readonly string[]> {
  const [entries, mounted] = await Promise.all([host.fs.list(mount, signal), mountedControllers(host, signal)]);
  const present = new Set(entries.map(({ name }) => name));
  return controllers
    .filter((name) => present.has(name) && (mounted.size === 0 || mounted.has(name)))
    .map((name) => `${mount}/${name}`);
}

/** None where the target does not show its mounts. */
async function mountedControllers(host: Host, signal: AbortSignal): Promise<ReadonlySet<string>> {
  const mounts = (await listMounts(host, signal)).filter(({ fsType }) => fsType.startsWith("cgroup"));
  const below = mounts.filter(({ path }) => path.startsWith(`${mount}/`));
  return new Set(below.flatMap(({ path }) => path.slice(mount.length + 1).split(",")));
}

/** Controllers of version 1 that a node cannot do without and that are not mounted on the target, sorted. */
export async function unmountedControllers(host: Host, signal: AbortSignal): Promise<readonly string[]> {
  const mounted = await mountedControllers(host, signal);
  return mounted.size === 0 ? [] : ["cpu", "cpuacct", "cpuset", "memory"].filter((name) => !mounted.has(name));
}

function limitsV1(path: string, limits: CgroupLimits): readonly FileChange[] {
  const set = (controller: string, file: string, value: number | undefined): FileChange[] =>
    value === undefined ? [] : [{ do: "write", path: `${mount}/${controller}${path}/${file}`, data: whole(value) }];
  return [
    ...set("cpu", "cpu.shares", limits.cpuShares),
    ...set("cpu", "cpu.cfs_period_us", limits.cpuPeriodUs),
    ...set("cpu", "cpu.cfs_quota_us", limits.cpuQuotaUs),
    ...set("memory", "memory.limit_in_bytes", limits.memoryBytes),
    ...set("pids", "pids.max", limits.pids),
    ...(limits.cpus === undefined
      ? []
      : [{ do: "write" as const, path: `${mount}/cpuset${path}/cpuset.cpus`, data: limits.cpus }]),
    ...Object.entries(limits.hugepages ?? {}).flatMap(([size, bytes]) =>
      set("hugetlb", `hugetlb.${size}.limit_in_bytes`, bytes),
    ),
  ];
}

function limitsV2(path: string, limits: CgroupLimits): readonly FileChange[] {
  const set = (file: string, value: string | undefined): FileChange[] =>
    value === undefined ? [] : [{ do: "write", path: `${mount}${path}/${file}`, data: value }];
  const quota = limits.cpuQuotaUs;
  return [
    ...set("cpu.weight", limits.cpuShares === undefined ? undefined : String(weightOf(limits.cpuShares))),
    ...set(
      "cpu.max",
      quota === undefined ? undefined : `${quota <= 0 ? "max" : quota} ${limits.cpuPeriodUs ?? 100_000}`,
    ),
    ...set("memory.max", limits.memoryBytes === undefined ? undefined : whole(limits.memoryBytes)),
    ...set("memory.min", limits.memoryMinBytes === undefined ? undefined : whole(limits.memoryMinBytes)),
    ...set("memory.low", limits.memoryLowBytes === undefined ? undefined : whole(limits.memoryLowBytes)),
    ...set("memory.swap.max", limits.swapBytes === undefined ? undefined : whole(limits.swapBytes)),
    ...set("pids.max", limits.pids === undefined ? undefined : String(limits.pids)),
    ...set("cpuset.cpus", limits.cpus),
    ...Object.entries(limits.hugepages ?? {}).flatMap(([size, bytes]) => set(`hugetlb.${size}.max`, whole(bytes))),
  ];
}

/** All digits of an integer, also of one beyond 2^53. */
function whole(value: number): string {
  return BigInt(value).toString();
}

/** The target's cgroups of version 2 have the controller `hugetlb`. */
async function limitsHugePages(host: Host, signal: AbortSignal): Promise<boolean> {
  const controllers = await unlessGone(host.fs.readFile(`${mount}/cgroup.controllers`, { signal }));
  return controllers?.toString("utf8").split(/\s+/).includes("hugetlb") === true;
}

/** Shares of version 1 (2 to 262144) as a weight of version 2 (1 to 10000).
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2254-cgroup-v2 */
export function weightOf(shares: number): number {
  return Math.trunc(1 + ((shares - 2) * 9999) / 262142);
}

async function subgroups(host: Host, path: string, signal: AbortSignal): Promise<readonly string[]> {
  const entries = (await unlessGone(host.fs.list(path, signal))) ?? [];
  return entries.filter(({ kind }) => kind === "directory").map(({ name }) => name);
}

/** Removes cgroup trees. A cgroup's files are removed with it: only directories are removed, depth first. */
async function removeTrees(host: Host, paths: readonly string[], signal: AbortSignal): Promise<void> {
  const remove = (path: string): FileChange => ({ do: "remove", path });
  try {
    return await host.fs.apply(paths.map(remove), signal);
  } catch (error) {
    if (!hasCode(error, "failed_precondition")) throw error;
  }
  // Some runtimes leave cgroups of their own in a pod's.
  for (const path of paths) {
    for (const name of await subgroups(host, path, signal)) await removeTrees(host, [`${path}/${name}`], signal);
    await host.fs.apply([remove(path)], signal).catch((error: unknown) => {
      if (!hasCode(error, "failed_precondition")) throw error;
      throw new CodedError("failed_precondition", `${path} still has processes in it`, { cause: error });
    });
  }
}
