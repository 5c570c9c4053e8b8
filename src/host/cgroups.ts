import { CodedError, hasCode, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";
import { exists, swapFileV2 } from "./exists.ts";
import { listMounts } from "./mounts.ts";
import { inodes, killProcesses, validateV1, validateV2, type NamedCgroup } from "./cgroup-commands.ts";
import { cgroupMount as mount, cpusetInheritance, controllerInheritance, wordsOf } from "./cgroup-inheritance.ts";

/** Limits of a cgroup; undefined ones are left unchanged. */
export interface CgroupLimits {
  readonly cpuShares?: number;
  /** Microseconds of CPU time in each period; -1 for no limit. */
  readonly cpuQuotaUs?: number;
  readonly cpuPeriodUs?: number;
  readonly memoryBytes?: number;
  /** memory.min and memory.low; ignored with v1. */
  readonly memoryMinBytes?: number;
  readonly memoryLowBytes?: number;
  /** memory.swap.max; ignored with v1 or without swap accounting. */
  readonly swapBytes?: number;
  /** Ignored if the target cannot limit process IDs. */
  readonly pids?: number;
  /** CPUs in cpuset format, such as `0-3,8`. */
  readonly cpus?: string;
  /** Bytes of huge pages by page size in cgroup format, such as `2MB`; ignored if the target cannot limit huge pages. */
  readonly hugepages?: Readonly<Record<string, number>>;
}

/** The target's cgroup hierarchies: one per controller with v1, a single one with v2. */
export type Cgroups = Awaited<ReturnType<typeof openCgroups>>;

/** Lists the v2 controllers that the kernel has. */
const rootControllers = `${mount}/cgroup.controllers`;

/** v1 hierarchies in which the kubelet creates a pod's cgroup, and the v2 one on hybrid machines, since runc creates
 *  containers' cgroups there too and leaves their parents behind. */
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

/** The hierarchies that must contain a cgroup for it to exist. */
const limiting: readonly string[] = ["cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"];

/** @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export async function openCgroups(host: Host, version: 1 | 2, signal: AbortSignal) {
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
  const inheritance = version === 2 ? controllerInheritance(host) : cpusetInheritance(host, roots);
  const directories = (path: string, parents: boolean) =>
    roots.map((root): FileChange => ({ kind: "mkdir", path: root + path, parents }));
  const stepByStep = async (path: string, limits: CgroupLimits, stop: AbortSignal) => {
    await host.fs.apply(directories(path, true), stop);
    await inheritance.prepare(path, stop);
    await host.fs.apply(limitsOf(path, limits), stop);
    // Children inherit the new value, so drop the cached state.
    if (limits.cpus !== undefined) inheritance.invalidate(path);
  };
  /** Applies changes and limits in one batch; falls back to separate steps if that fails.
   *  @param changes all changes except the limits; undefined to work in separate steps at once. @returns false if it fell back. */
  const inOneBatch = async (
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
      // The ancestors have changed: repeat step by step, which succeeds or shows the reason.
      inheritance.invalidate(path);
      await stepByStep(path, limits, stop);
      return false;
    }
  };
  const inAllHierarchies = (paths: readonly string[]) => paths.flatMap((path) => roots.map((root) => root + path));
  return {
    /** True if the target can limit process IDs. */
    limitsPids,
    /** Creates a cgroup and its ancestors, and sets its limits. @param path from the root, such as `/kubepods/burstable`. */
    async ensure(path: string, limits: CgroupLimits, stop: AbortSignal): Promise<void> {
      const isSettled = inheritance.isPrepared(path) && limits.cpus === undefined;
      await inOneBatch(path, isSettled ? [] : undefined, limits, stop);
    },
    /** Like `ensure`, for a cgroup without processes: a single batch of file changes if its ancestors were created before.
     *  @returns false if ancestors created here had been changed meanwhile. */
    create(path: string, limits: CgroupLimits, stop: AbortSignal): Promise<boolean> {
      const inherited = inheritance.changesForNew(path);
      return inOneBatch(path, inherited && [...directories(path, false), ...inherited], limits, stop);
    },
    /** Removes cgroups without processes, and their descendants; a missing one is not an error. */
    async remove(paths: readonly string[], stop: AbortSignal): Promise<void> {
      await removeTrees(host, inAllHierarchies(paths), stop);
      paths.forEach(inheritance.invalidateRemoved);
    },
    /** Validates that limits can be set in a cgroup created by others; returns the kubelet's message, or undefined if valid. */
    validate: (cgroup: NamedCgroup, stop: AbortSignal): Promise<string | undefined> =>
      version === 2 ? validateV2(host, cgroup, stop) : validateV1(host, roots.filter(isLimiting), cgroup, stop),
    /** Names of a cgroup's children; empty for a missing cgroup. */
    async children(path: string, stop: AbortSignal): Promise<readonly string[]> {
      const names = new Set<string>();
      for (const root of roots) for (const name of await subgroups(host, root + path, stop)) names.add(name);
      return [...names];
    },
    /** Kills all processes in cgroups and their descendants, and waits for their end, two seconds at most.
     *  @returns the PIDs of the processes found. */
    kill: (paths: readonly string[], stop: AbortSignal): Promise<readonly number[]> =>
      killProcesses(host, inAllHierarchies(paths), stop),
    /** Identities of cgroups by path, which change when a cgroup is re-created; none for a missing one. */
    identities: (paths: readonly string[], stop: AbortSignal): Promise<ReadonlyMap<string, string>> =>
      identitiesIn(host, roots.find(isLimiting) ?? mount, paths, stop),
  };
}

/** @param root of the hierarchy to look in. */
async function identitiesIn(host: Host, root: string, paths: readonly string[], signal: AbortSignal) {
  const directories = paths.map((path) => root + path);
  const found = await inodes(host, directories, signal);
  return new Map([...found].map(([path, inode]) => [path.slice(root.length), inode]));
}

/** True for a hierarchy that the kubelet checks for a cgroup; there may be others. */
function isLimiting(root: string): boolean {
  return root === mount || limiting.some((name) => root === `${mount}/${name}`);
}

/** The mounted v1 hierarchies: systemd leaves an empty directory for a hierarchy that it could not mount. One mount may have
 *  several controllers, with a symlink for each. */
async function hierarchies(host: Host, signal: AbortSignal): Promise<readonly string[]> {
  const [entries, mounted] = await Promise.all([host.fs.list(mount, signal), mountedControllers(host, signal)]);
  const present = new Set(entries.map(({ name }) => name));
  return controllers
    .filter((name) => present.has(name) && (mounted.size === 0 || mounted.has(name)))
    .map((name) => `${mount}/${name}`);
}

/** The mounted v1 controllers; empty if the target does not show its mounts. */
async function mountedControllers(host: Host, signal: AbortSignal): Promise<ReadonlySet<string>> {
  const mounts = (await listMounts(host, signal)).filter(({ fsType }) => fsType.startsWith("cgroup"));
  const below = mounts.filter(({ path }) => path.startsWith(`${mount}/`));
  return new Set(below.flatMap(({ path }) => path.slice(mount.length + 1).split(",")));
}

/** Controllers that a node requires and the target lacks, sorted: not mounted with v1, not in the kernel with v2 (`cgroup_disable=memory`).
 *  Empty if the target does not show them. */
export async function missingControllers(host: Host, version: 1 | 2, signal: AbortSignal): Promise<readonly string[]> {
  if (version === 2) {
    const present = await wordsOf(host, rootControllers, signal);
    return present ? ["cpu", "memory"].filter((name) => !present.includes(name)) : [];
  }
  const mounted = await mountedControllers(host, signal);
  return mounted.size === 0 ? [] : ["cpu", "cpuacct", "cpuset", "memory"].filter((name) => !mounted.has(name));
}

function limitsV1(path: string, limits: CgroupLimits): readonly FileChange[] {
  const set = (controller: string, file: string, value: number | undefined): FileChange[] =>
    value === undefined
      ? []
      : [{ kind: "write", path: `${mount}/${controller}${path}/${file}`, data: integerText(value) }];
  return [
    ...set("cpu", "cpu.shares", limits.cpuShares),
    ...set("cpu", "cpu.cfs_period_us", limits.cpuPeriodUs),
    ...set("cpu", "cpu.cfs_quota_us", limits.cpuQuotaUs),
    ...set("memory", "memory.limit_in_bytes", limits.memoryBytes),
    ...set("pids", "pids.max", limits.pids),
    ...(limits.cpus === undefined
      ? []
      : [{ kind: "write" as const, path: `${mount}/cpuset${path}/cpuset.cpus`, data: limits.cpus }]),
    ...Object.entries(limits.hugepages ?? {}).flatMap(([size, bytes]) =>
      set("hugetlb", `hugetlb.${size}.limit_in_bytes`, bytes),
    ),
  ];
}

function limitsV2(path: string, limits: CgroupLimits): readonly FileChange[] {
  const set = (file: string, value: string | number | undefined): FileChange[] => {
    if (value === undefined) return [];
    const data = typeof value === "number" ? integerText(value) : value;
    return [{ kind: "write", path: `${mount}${path}/${file}`, data }];
  };
  const quota = limits.cpuQuotaUs;
  return [
    ...set("cpu.weight", limits.cpuShares === undefined ? undefined : weightOf(limits.cpuShares)),
    ...set(
      "cpu.max",
      quota === undefined ? undefined : `${quota <= 0 ? "max" : quota} ${limits.cpuPeriodUs ?? 100_000}`,
    ),
    ...set("memory.max", limits.memoryBytes),
    ...set("memory.min", limits.memoryMinBytes),
    ...set("memory.low", limits.memoryLowBytes),
    ...set("memory.swap.max", limits.swapBytes),
    ...set("pids.max", limits.pids),
    ...set("cpuset.cpus", limits.cpus),
    ...Object.entries(limits.hugepages ?? {}).flatMap(([size, bytes]) => set(`hugetlb.${size}.max`, bytes)),
  ];
}

/** Formats an integer with all digits, also beyond 2^53. */
function integerText(value: number): string {
  return BigInt(value).toString();
}

/** True if the target's v2 cgroups have the `hugetlb` controller. */
async function limitsHugePages(host: Host, signal: AbortSignal): Promise<boolean> {
  return (await wordsOf(host, rootControllers, signal))?.includes("hugetlb") === true;
}

/** Converts v1 shares (2 to 262144) to a v2 weight (1 to 10000).
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2254-cgroup-v2 */
export function weightOf(shares: number): number {
  return Math.trunc(1 + ((shares - 2) * 9999) / 262142);
}

async function subgroups(host: Host, path: string, signal: AbortSignal): Promise<readonly string[]> {
  const entries = (await ignoreNotFound(host.fs.list(path, signal))) ?? [];
  return entries.filter(({ kind }) => kind === "directory").map(({ name }) => name);
}

/** Removes cgroup trees, depth first. Only directories are removed, because the kernel removes a cgroup's files with it. */
async function removeTrees(host: Host, paths: readonly string[], signal: AbortSignal): Promise<void> {
  const remove = (path: string): FileChange => ({ kind: "remove", path });
  try {
    return await host.fs.apply(paths.map(remove), signal);
  } catch (error) {
    if (!hasCode(error, "failed_precondition")) throw error;
  }
  // Some runtimes leave their own cgroups in a pod's cgroup.
  for (const path of paths) {
    for (const name of await subgroups(host, path, signal)) await removeTrees(host, [`${path}/${name}`], signal);
    await host.fs.apply([remove(path)], signal).catch((error: unknown) => {
      if (!hasCode(error, "failed_precondition")) throw error;
      throw new CodedError("failed_precondition", `${path} still has processes in it`, { cause: error });
    });
  }
}
