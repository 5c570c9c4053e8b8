import { CodedError, hasCode, throwIfAborted } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";
import { exists } from "./exists.ts";

/** Limits of a cgroup; what is undefined stays as it is. */
export interface CgroupLimits {
  readonly cpuShares?: number;
  /** Microseconds of CPU time in each period; -1 for no limit. */
  readonly cpuQuotaUs?: number;
  readonly cpuPeriodUs?: number;
  readonly memoryBytes?: number;
  readonly pids?: number;
}

/** The target's cgroup hierarchies: one for each controller with version 1, a single one with version 2. */
export interface Cgroups {
  /** Makes a cgroup and what leads to it, and sets its limits. @param path from the top, such as `/kubepods/burstable`. */
  ensure(path: string, limits: CgroupLimits, signal: AbortSignal): Promise<void>;
  /** Removes an empty cgroup and the cgroups in it; one that is not there is success. */
  remove(path: string, signal: AbortSignal): Promise<void>;
  /** Names of the cgroups right below a path; none where it does not exist. */
  children(path: string, signal: AbortSignal): Promise<readonly string[]>;
}

const mount = "/sys/fs/cgroup";
/** Hierarchies of version 1 in which the kubelet makes a pod's cgroup; and version 2's where a machine has both, since runc puts
 *  containers there too and leaves what leads to them behind. */
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

/** @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export async function openCgroups(host: Host, version: 1 | 2, signal: AbortSignal): Promise<Cgroups> {
  const roots = version === 2 ? [mount] : await hierarchies(host, signal);
  const write = version === 2 ? limitsV2 : limitsV1;
  return {
    async ensure(path, limits, stop) {
      const missing = [];
      for (const root of roots) if (!(await exists(host.fs, root + path, stop))) missing.push(root);
      await host.fs.apply(
        missing.map((root) => ({ do: "mkdir", path: root + path, parents: true })),
        stop,
      );
      if (version === 2 && missing.length > 0) await delegateControllers(host, path, stop);
      if (version === 1 && missing.some((root) => root.endsWith("/cpuset"))) await inheritCpuset(host, path, stop);
      await host.fs.apply(write(path, limits), stop);
    },
    remove: async (path, stop) => {
      for (const root of roots) await removeTree(host, root + path, stop);
    },
    async children(path, stop) {
      const names = new Set<string>();
      for (const root of roots) for (const name of await subgroups(host, root + path, stop)) names.add(name);
      return [...names];
    },
  };
}

async function hierarchies(host: Host, signal: AbortSignal): Promise<readonly string[]> {
  const present = new Set((await host.fs.list(mount, signal)).map(({ name }) => name));
  return controllers.filter((name) => present.has(name)).map((name) => `${mount}/${name}`);
}

/** A new cpuset of version 1 starts empty, and nothing runs in it until it has CPUs and memory nodes: take the parent's. */
async function inheritCpuset(host: Host, path: string, signal: AbortSignal): Promise<void> {
  const names = path.split("/").filter((name) => name !== "");
  for (let depth = 1; depth <= names.length; depth++) {
    const own = `${mount}/cpuset/${names.slice(0, depth).join("/")}`;
    const parent = `${mount}/cpuset/${names.slice(0, depth - 1).join("/")}`;
    for (const file of ["cpuset.cpus", "cpuset.mems"]) {
      const read = async (directory: string) =>
        (await host.fs.readFile(`${directory}/${file}`, { signal })).toString("utf8").trim();
      if ((await read(own)) === "")
        await host.fs.apply([{ do: "write", path: `${own}/${file}`, data: await read(parent) }], signal);
    }
  }
}

/** A cgroup of version 2 has only the files of controllers that each cgroup above it hands down: they are told to.
 *  @see https://docs.kernel.org/admin-guide/cgroup-v2.html#controlling-controllers */
async function delegateControllers(host: Host, path: string, signal: AbortSignal): Promise<void> {
  const names = path.split("/").filter((name) => name !== "");
  for (let depth = 0; depth < names.length; depth++) {
    const above = [mount, ...names.slice(0, depth)].join("/");
    const delegated = new Set(await wordsOf(host, `${above}/cgroup.subtree_control`, signal));
    const missing = (await wordsOf(host, `${above}/cgroup.controllers`, signal)).filter((name) => !delegated.has(name));
    for (const name of missing) {
      // One that the kernel refuses to hand down is missed only where a limit of it is set, and then that says so.
      await host.fs
        .apply([{ do: "write", path: `${above}/cgroup.subtree_control`, data: `+${name}` }], signal)
        .catch(() => throwIfAborted(signal));
    }
  }
}

/** Words of a file; none where it is not there. */
async function wordsOf(host: Host, path: string, signal: AbortSignal): Promise<readonly string[]> {
  try {
    return (await host.fs.readFile(path, { signal }))
      .toString("utf8")
      .split(/\s+/)
      .filter((word) => word !== "");
  } catch (error) {
    if (hasCode(error, "not_found")) return [];
    throw error;
  }
}

function limitsV1(path: string, limits: CgroupLimits): readonly FileChange[] {
  const set = (controller: string, file: string, value: number | undefined): FileChange[] =>
    value === undefined ? [] : [{ do: "write", path: `${mount}/${controller}${path}/${file}`, data: String(value) }];
  return [
    ...set("cpu", "cpu.shares", limits.cpuShares),
    ...set("cpu", "cpu.cfs_period_us", limits.cpuPeriodUs),
    ...set("cpu", "cpu.cfs_quota_us", limits.cpuQuotaUs),
    ...set("memory", "memory.limit_in_bytes", limits.memoryBytes),
    ...set("pids", "pids.max", limits.pids),
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
    ...set("memory.max", limits.memoryBytes === undefined ? undefined : String(limits.memoryBytes)),
    ...set("pids.max", limits.pids === undefined ? undefined : String(limits.pids)),
  ];
}

/** Shares of version 1 (2 to 262144) as a weight of version 2 (1 to 10000).
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2254-cgroup-v2 */
export function weightOf(shares: number): number {
  return Math.trunc(1 + ((shares - 2) * 9999) / 262142);
}

async function subgroups(host: Host, path: string, signal: AbortSignal): Promise<readonly string[]> {
  const entries = await host.fs.list(path, signal).catch((error: unknown) => {
    if (hasCode(error, "not_found")) return [];
    throw error;
  });
  return entries.filter(({ kind }) => kind === "directory").map(({ name }) => name);
}

/** A cgroup's files go with it: only directories are removed, depth first. */
async function removeTree(host: Host, path: string, signal: AbortSignal): Promise<void> {
  for (const name of await subgroups(host, path, signal)) await removeTree(host, `${path}/${name}`, signal);
  try {
    await host.fs.apply([{ do: "remove", path }], signal);
  } catch (error) {
    if (hasCode(error, "failed_precondition"))
      throw new CodedError("failed_precondition", `${path} still has processes in it`, { cause: error });
    throw error;
  }
}
