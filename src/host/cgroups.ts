import { CodedError, hasCode, throwIfAborted } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";

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
  /** The same for a cgroup that nothing runs in yet, in a single change of files where what leads to it was made before. */
  make(path: string, limits: CgroupLimits, signal: AbortSignal): Promise<void>;
  /** Removes cgroups without processes, and the cgroups in them; one that is not there is success. */
  remove(paths: readonly string[], signal: AbortSignal): Promise<void>;
  /** Names of the cgroups right below a path; none where it does not exist. */
  children(path: string, signal: AbortSignal): Promise<readonly string[]>;
}

const mount = "/sys/fs/cgroup";
const cpusetRoot = `${mount}/cpuset`;
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
  const limitsOf = version === 2 ? limitsV2 : limitsV1;
  const heritage = version === 2 ? handedDown(host) : cpusets(host, roots);
  const directories = (path: string) =>
    roots.map((root): FileChange => ({ do: "mkdir", path: root + path, parents: true }));
  const stepByStep: Cgroups["ensure"] = async (path, limits, stop) => {
    await host.fs.apply(directories(path), stop);
    await heritage.settle(path, stop);
    await host.fs.apply(limitsOf(path, limits), stop);
  };
  /** @param changes what does all but the limits, where it is known to be enough. */
  const atOnce = async (
    path: string,
    changes: readonly FileChange[] | undefined,
    limits: CgroupLimits,
    stop: AbortSignal,
  ): Promise<void> => {
    if (!changes) return stepByStep(path, limits, stop);
    try {
      await host.fs.apply([...changes, ...limitsOf(path, limits)], stop);
    } catch {
      throwIfAborted(stop);
      // The cgroups above are no longer as they were found: step by step it works, or shows why not.
      heritage.forget(path);
      await stepByStep(path, limits, stop);
    }
  };
  return {
    ensure: (path, limits, stop) => atOnce(path, heritage.has(path) ? [] : undefined, limits, stop),
    make(path, limits, stop) {
      const inherited = heritage.ofNew(path);
      return atOnce(path, inherited && [...directories(path), ...inherited], limits, stop);
    },
    async remove(paths, stop) {
      const all = paths.flatMap((path) => roots.map((root) => root + path));
      await removeTrees(host, all, stop);
      paths.forEach(heritage.gone);
    },
    async children(path, stop) {
      const names = new Set<string>();
      for (const root of roots) for (const name of await subgroups(host, root + path, stop)) names.add(name);
      return [...names];
    },
  };
}

/** What a cgroup has from the one above it. */
interface Heritage {
  /** Sees to it that a cgroup that exists has it, and all above it. */
  settle(path: string, signal: AbortSignal): Promise<void>;
  /** Whether it was seen to. */
  has(path: string): boolean;
  /** The changes that give it to a cgroup just made; undefined while the one above is not known to have it. */
  ofNew(path: string): readonly FileChange[] | undefined;
  /** Nothing is known any more of a cgroup and of those above it. */
  forget(path: string): void;
  /** A cgroup was removed. */
  gone(path: string): void;
}

/** The cgroups on the way to one and itself, the top one as "". */
function lineage(path: string): readonly string[] {
  const names = path.split("/").filter((name) => name !== "");
  return ["", ...names.map((_, depth) => `/${names.slice(0, depth + 1).join("/")}`)];
}

function above(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}

async function hierarchies(host: Host, signal: AbortSignal): Promise<readonly string[]> {
  const present = new Set((await host.fs.list(mount, signal)).map(({ name }) => name));
  return controllers.filter((name) => present.has(name)).map((name) => `${mount}/${name}`);
}

const cpusetFiles = ["cpuset.cpus", "cpuset.mems"] as const;
/** What the files of cpusetFiles say. */
type Cpuset = readonly string[];

/** A new cpuset of version 1 starts empty, and nothing runs in it until it has CPUs and memory nodes: it takes the parent's. */
function cpusets(host: Host, roots: readonly string[]): Heritage {
  const present = roots.includes(cpusetRoot);
  const known = new Map<string, Cpuset>();
  const writes = (path: string, values: Cpuset) =>
    cpusetFiles.map(
      (file, at): FileChange => ({ do: "write", path: `${cpusetRoot}${path}/${file}`, data: values[at] ?? "" }),
    );
  const read = (path: string, signal: AbortSignal): Promise<Cpuset> =>
    Promise.all(
      cpusetFiles.map(async (file) =>
        (await host.fs.readFile(`${cpusetRoot}${path}/${file}`, { signal })).toString("utf8").trim(),
      ),
    );
  const settle = async (path: string, signal: AbortSignal): Promise<Cpuset> => {
    const own = await read(path, signal);
    const empty = path !== "" && own.includes("");
    const parent = empty ? await settle(above(path), signal) : own;
    const values = own.map((value, at) => value || (parent[at] ?? ""));
    if (empty) await host.fs.apply(writes(path, values), signal);
    known.set(path, values);
    return values;
  };
  return {
    settle: async (path, signal) => void (present ? await settle(path, signal) : known.set(path, [])),
    has: (path) => known.has(path),
    ofNew(path) {
      const parent = known.get(above(path));
      return present ? parent && writes(path, parent) : [];
    },
    forget: (path) => lineage(path).forEach((each) => known.delete(each)),
    gone: (path) => void known.delete(path),
  };
}

/** A cgroup of version 2 has only the files of controllers that each cgroup above it hands down: they are told to.
 *  @see https://docs.kernel.org/admin-guide/cgroup-v2.html#controlling-controllers */
function handedDown(host: Host): Heritage {
  /** Those that hand down all they have. */
  const handing = new Set<string>();
  const settled = new Set<string>();
  return {
    async settle(path, signal) {
      for (const each of lineage(above(path))) {
        if (!handing.has(each)) await handDown(host, mount + each, signal);
        handing.add(each);
      }
      settled.add(path);
    },
    has: (path) => settled.has(path),
    ofNew: (path) => (handing.has(above(path)) ? [] : undefined),
    forget(path) {
      for (const each of lineage(path)) for (const set of [handing, settled]) set.delete(each);
    },
    gone: (path) => void (handing.delete(path), settled.delete(path)),
  };
}

async function handDown(host: Host, directory: string, signal: AbortSignal): Promise<void> {
  const control = `${directory}/cgroup.subtree_control`;
  const [handed, present] = await Promise.all([
    wordsOf(host, control, signal),
    wordsOf(host, `${directory}/cgroup.controllers`, signal),
  ]);
  for (const name of present.filter((each) => !handed.includes(each))) {
    // One that the kernel refuses to hand down is missed only where a limit of it is set, and then that says so.
    await host.fs.apply([{ do: "write", path: control, data: `+${name}` }], signal).catch(() => throwIfAborted(signal));
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
