import { throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";

/** Mount point of the target's cgroups. */
export const cgroupMount = "/sys/fs/cgroup";
const cpusetRoot = `${cgroupMount}/cpuset`;

/** Settings that a cgroup inherits from its parent. */
export interface CgroupInheritance {
  /** Applies the inherited settings to an existing cgroup and all its ancestors. */
  prepare(path: string, signal: AbortSignal): Promise<void>;
  /** True if the inherited settings were applied. */
  isPrepared(path: string): boolean;
  /** Changes that apply the inherited settings to a new cgroup; undefined if its parent may not have them. */
  changesForNew(path: string): readonly FileChange[] | undefined;
  /** Invalidates the cached state of a cgroup and its ancestors. */
  invalidate(path: string): void;
  /** Invalidates the cached state of a removed cgroup. */
  invalidateRemoved(path: string): void;
}

/** A cgroup and its ancestors, beginning with the root, "". */
function lineage(path: string): readonly string[] {
  const names = path.split("/").filter((name) => name !== "");
  return ["", ...names.map((_, depth) => `/${names.slice(0, depth + 1).join("/")}`)];
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}

const cpusetFiles = ["cpuset.cpus", "cpuset.mems"] as const;
/** Contents of the cpuset files. */
type Cpuset = readonly string[];

/** A new v1 cpuset is empty, and nothing can run in it until it has CPUs and memory nodes: it inherits its parent's.
 *  @param roots the mounted hierarchies. */
export function cpusetInheritance(host: Host, roots: readonly string[]): CgroupInheritance {
  const present = roots.includes(cpusetRoot);
  const known = new Map<string, Cpuset>();
  const writes = (path: string, values: Cpuset) =>
    cpusetFiles.map(
      (file, at): FileChange => ({ kind: "write", path: `${cpusetRoot}${path}/${file}`, data: values[at] ?? "" }),
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
    const parent = empty ? await settle(parentOf(path), signal) : own;
    const values = own.map((value, at) => value || (parent[at] ?? ""));
    if (empty) await host.fs.apply(writes(path, values), signal);
    known.set(path, values);
    return values;
  };
  return {
    prepare: async (path, signal) => void (present ? await settle(path, signal) : known.set(path, [])),
    isPrepared: (path) => known.has(path),
    changesForNew(path) {
      const parent = known.get(parentOf(path));
      return present ? parent && writes(path, parent) : [];
    },
    invalidate: (path) => lineage(path).forEach((each) => known.delete(each)),
    invalidateRemoved: (path) => void known.delete(path),
  };
}

/** A v2 cgroup has only the files of controllers that every ancestor enables in its subtree_control.
 *  @see https://docs.kernel.org/admin-guide/cgroup-v2.html#controlling-controllers */
export function controllerInheritance(host: Host): CgroupInheritance {
  /** Cgroups whose subtree_control enables all of their controllers. */
  const enabling = new Set<string>();
  const prepared = new Set<string>();
  return {
    async prepare(path, signal) {
      for (const each of lineage(parentOf(path))) {
        if (!enabling.has(each)) await enableControllers(host, cgroupMount + each, signal);
        enabling.add(each);
      }
      prepared.add(path);
    },
    isPrepared: (path) => prepared.has(path),
    changesForNew: (path) => (enabling.has(parentOf(path)) ? [] : undefined),
    invalidate(path) {
      for (const each of lineage(path)) for (const set of [enabling, prepared]) set.delete(each);
    },
    invalidateRemoved: (path) => void (enabling.delete(path), prepared.delete(path)),
  };
}

async function enableControllers(host: Host, directory: string, signal: AbortSignal): Promise<void> {
  const control = `${directory}/cgroup.subtree_control`;
  const [handed = [], present = []] = await Promise.all([
    wordsOf(host, control, signal),
    wordsOf(host, `${directory}/cgroup.controllers`, signal),
  ]);
  for (const name of present.filter((each) => !handed.includes(each))) {
    // A controller that the kernel refuses to enable matters only if one of its limits is set; that write fails then.
    await host.fs
      .apply([{ kind: "write", path: control, data: `+${name}` }], signal)
      .catch(() => throwIfAborted(signal));
  }
}

/** Reads a file of names separated by spaces, such as `cgroup.controllers`; undefined for a missing file. */
export async function wordsOf(host: Host, path: string, signal: AbortSignal): Promise<readonly string[] | undefined> {
  const text = (await ignoreNotFound(host.fs.readFile(path, { signal })))?.toString("utf8");
  return text?.split(/\s+/).filter((word) => word !== "");
}
