import { throwIfAborted, unlessGone } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";

/** Where the target's cgroups are. */
export const cgroupMount = "/sys/fs/cgroup";
const cpusetRoot = `${cgroupMount}/cpuset`;

/** What a cgroup has from the one above it. */
export interface Heritage {
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

const cpusetFiles = ["cpuset.cpus", "cpuset.mems"] as const;
/** What the files of cpusetFiles say. */
type Cpuset = readonly string[];

/** A new cpuset of version 1 starts empty, and nothing runs in it until it has CPUs and memory nodes: it takes the parent's.
 *  @param roots the hierarchies that are there. */
export function cpusets(host: Host, roots: readonly string[]): Heritage {
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
export function handedDown(host: Host): Heritage {
  /** Those that hand down all they have. */
  const handing = new Set<string>();
  const settled = new Set<string>();
  return {
    async settle(path, signal) {
      for (const each of lineage(above(path))) {
        if (!handing.has(each)) await handDown(host, cgroupMount + each, signal);
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
  const text = (await unlessGone(host.fs.readFile(path, { signal })))?.toString("utf8") ?? "";
  return text.split(/\s+/).filter((word) => word !== "");
}
