import { readFileSync, readdirSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** What a process's own CPU time, and that of the children that it has waited for, count as; by the kernel's name of its program. */
const roles: Readonly<Record<string, readonly [own: string, children: string]>> = {
  "kube-apiserver": ["API server", "API server"],
  etcd: ["etcd", "etcd"],
  "kube-controller": ["controllers", "controllers"],
  "kube-scheduler": ["controllers", "controllers"],
  "kube-proxy": ["proxy", "proxy"],
  containerd: ["containerd", "starts of shims"],
  "containerd-shim": ["shims", "runc"],
};

/** CPU time by role within an interval, milliseconds. */
export interface CpuSlice {
  /** Milliseconds since the beginning. */
  readonly at: number;
  readonly used: ReadonlyMap<string, number>;
}

interface Times {
  readonly own: number;
  readonly children: number;
}

const msPerTick = 10;

/** @param stat a line of /proc/PID/stat. @see https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html */
function timesOf(stat: string): Times {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [user, system, childUser, childSystem] = fields.slice(11, 15).map((ticks) => Number(ticks) * msPerTick);
  return { own: (user ?? 0) + (system ?? 0), children: (childUser ?? 0) + (childSystem ?? 0) };
}

/** Samples the CPU time of a cluster's processes until the signal aborts.
 *  @param inside a process of the cluster: only those in its mount namespace count. @param agent returns the PID of the agent. */
export async function sampleCpu(
  { inside, agent, intervalMs }: { readonly inside: number; readonly agent: () => number; readonly intervalMs: number },
  signal: AbortSignal,
): Promise<readonly CpuSlice[]> {
  const namespace = readlinkSync(`/proc/${inside}/ns/mnt`);
  const known = new Map<string, readonly [string, string]>();
  const before = new Map<string, Times>();
  const roleOf = (pid: string): readonly [string, string] | undefined => {
    if (Number(pid) === agent()) return ["agent", "agent's commands"];
    if (readlinkSync(`/proc/${pid}/ns/mnt`) !== namespace) return undefined;
    return roles[readFileSync(`/proc/${pid}/comm`, "utf8").trim()];
  };
  const sample = (isFirst: boolean): Map<string, number> => {
    const used = new Map<string, number>();
    const add = (role: string, ms: number) => used.set(role, (used.get(role) ?? 0) + ms);
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        // A process without a role may become the agent.
        const role = known.get(pid) ?? roleOf(pid);
        if (!role) continue;
        known.set(pid, role);
        const now = timesOf(readFileSync(`/proc/${pid}/stat`, "utf8"));
        const last = before.get(pid) ?? (isFirst ? now : { own: 0, children: 0 });
        before.set(pid, now);
        add(role[0], now.own - last.own);
        add(role[1], now.children - last.children);
      } catch {
        // The process has ended.
        known.delete(pid);
      }
    }
    return used;
  };
  sample(true);
  const began = performance.now();
  const slices: CpuSlice[] = [];
  while (!signal.aborted) {
    await sleep(intervalMs, undefined, { signal }).catch(() => undefined);
    slices.push({ at: performance.now() - began, used: sample(false) });
  }
  return slices;
}
