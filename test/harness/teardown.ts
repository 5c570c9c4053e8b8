import { cpSync, existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { removeCgroups } from "./cgroups.ts";
import {
  inodeOf,
  isAlive,
  listProcesses,
  must,
  type ProcessEntry,
  type ProcessId,
  signalProcess,
  textOf,
} from "./processes.ts";
import { runtimeDaemons } from "./runtime-daemon.ts";
import { forgetClustersFolder, type Layout, readState } from "./state.ts";
import { waitFor } from "./wait.ts";

/**
 * Removes a cluster without a trace, whatever state it is in: processes, mounts, namespaces, cgroups,
 * files. Doing it twice, or for a cluster that is not there, does nothing. What belongs to it is told
 * by its own namespaces, never by a program's name.
 */
export async function tearDown(layout: Layout): Promise<void> {
  const state = readState(layout);
  const cgroups = containerCgroups(layout);
  await killAll(layout, state?.holder, Object.values(state?.daemons ?? {}));
  await removeCgroups(layout, cgroups);
  for (const [path, name] of [
    [layout.agentNetns, layout.agentNetnsName],
    [layout.netns, layout.netnsName],
  ] as const)
    if (existsSync(path)) await must(["ip", "netns", "delete", name]);
  refuseMounts(layout);
  keepLogs(layout);
  rmSync(layout.dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  forgetClustersFolder();
}

/** All processes of a cluster: those in its network namespaces (its own, its agent's and its pods'), those in its cgroup, and their
 *  descendants. Not every runtime says where it keeps the namespaces of pods. */
export function clusterProcesses(layout: Layout, holder: ProcessId | undefined): ProcessEntry[] {
  const own = inodeOf(layout.netns);
  const spaces = new Set([own, inodeOf(layout.agentNetns)].filter((inode) => inode !== undefined));
  const all = listProcesses();
  // Any process inside sees the mounts; the holder is one, and others do when it has been killed.
  const insider = holder && isAlive(holder) ? holder : all.find((entry) => entry.netns === own && own !== undefined);
  for (const inode of insider ? podNetns(layout, insider) : []) spaces.add(inode);
  const ours = new Set(
    all
      .filter(({ netns, pid }) => (netns !== undefined && spaces.has(netns)) || isInCgroup(layout, pid))
      .map((entry) => entry.pid),
  );
  for (let grew = true; grew; ) {
    grew = false;
    for (const entry of all) {
      if (ours.has(entry.pid) || !ours.has(entry.parent)) continue;
      ours.add(entry.pid);
      grew = true;
    }
  }
  ours.delete(process.pid);
  return all.filter((entry) => ours.has(entry.pid));
}

function isInCgroup({ cgroup }: Layout, pid: number): boolean {
  return new RegExp(`:${cgroup}(/|$)`, "m").test(textOf(`/proc/${pid}/cgroup`));
}

async function killAll(layout: Layout, holder: ProcessId | undefined, daemons: readonly ProcessId[]): Promise<void> {
  for (const daemon of daemons) signalProcess(daemon, "SIGKILL");
  // The holder goes last: through it the namespaces of the pods are found.
  await waitFor(
    `the end of the processes of cluster ${layout.name}`,
    () => {
      const left = clusterProcesses(layout, holder).filter((entry) => entry.pid !== holder?.pid);
      for (const entry of left) signalProcess(entry, "SIGKILL");
      return left.length === 0;
    },
    {
      timeoutMs: 30_000,
      everyMs: 50,
      explain: () =>
        clusterProcesses(layout, holder)
          .map((entry) => `${entry.pid} ${commandOf(entry.pid)}`)
          .join("\n"),
    },
  );
  if (holder) {
    signalProcess(holder, "SIGKILL");
    await waitFor("the end of the mount namespace's holder", () => !isAlive(holder), {
      timeoutMs: 10_000,
      everyMs: 20,
    });
  }
}

/** Of a cluster in whatever state it is not known which runtime it had. */
const runtimes = [...new Set(Object.values(runtimeDaemons))];

function podNetns(layout: Layout, insider: ProcessId): number[] {
  const dirs = runtimes.map((runtime) => `/proc/${insider.pid}/root${runtime.podNetworks(layout)}`);
  return dirs.flatMap((dir) => namesIn(dir).flatMap((name) => inodeOf(join(dir, name)) ?? []));
}

/** The cgroups of containers as runc recorded them: those that no agent put below the cluster's own. */
function containerCgroups(layout: Layout): string[] {
  const containers = runtimes.flatMap((runtime) => {
    const folder = runtime.runcStates(layout);
    return namesIn(folder).map((id) => join(folder, id));
  });
  return containers.flatMap((container) => {
    try {
      const state = JSON.parse(readFileSync(join(container, "state.json"), "utf8")) as {
        cgroup_paths?: Record<string, string>;
      };
      return Object.values(state.cgroup_paths ?? {});
    } catch {
      return [];
    }
  });
}

/** With `GRAFTLET_TEST_LOGS` set the daemons' and agents' logs outlive the cluster, in a folder of its name there. */
function keepLogs(layout: Layout): void {
  const target = process.env.GRAFTLET_TEST_LOGS;
  if (target && existsSync(layout.logs)) cpSync(layout.logs, join(target, layout.name), { recursive: true });
}

/** Nothing is deleted through a mount that somebody made below the cluster's folder from outside. */
function refuseMounts(layout: Layout): void {
  const below = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[4] ?? "")
    .filter((path) => path.startsWith(`${layout.dir}/`));
  if (below.length > 0)
    throw new Error(`cluster ${layout.name} cannot be removed while these are mounted: ${below.join(", ")}`);
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
  } catch {
    return "(gone)";
  }
}
