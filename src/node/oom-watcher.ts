import { readLines } from "../host/command-lines.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog, Logger } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { EventSink, WaitForTarget } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";
import type { Host } from "../seams/host.ts";
import { script } from "../seams/command.ts";
import { readFile, writeFile } from "node:fs/promises";

export interface OomWatcherDeps extends ClockAndLog {
  readonly host: Pick<Host, "spawn">;
  readonly nodeName: string;
  readonly events: EventSink;
  readonly waitForTarget: WaitForTarget | undefined;
}

const listening = "listening";
/** Maximum size of a record of the kernel's log, bytes. */
const maxLineBytes = 8 << 10;
/** Delay before the kernel's log is read again after its reader has ended, milliseconds. */
const retryDelayMs = 10_000;

/** Prints new records of the kernel's log: existing ones are discarded in the first second. The reader ends with its standard input,
 *  also if its parent is killed. */
const reading = `
exec 3</dev/kmsg
command -v timeout >/dev/null || { echo "timeout: no such program" >&2; exit 1; }
timeout 1 dd bs=8192 <&3 >/dev/null 2>&1
dd bs=8192 <&3 2>/dev/null &
echo ${listening} >&2
exec >/dev/null 2>&1
read -r nothing
kill $!`;

/** Emits an event on the Node for each process that the kernel ended because the whole machine was out of memory; kills in a cgroup that
 *  reached its limit show in the container's status. If the kernel's log cannot be read, that is logged once and retried.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior */
export function createOomWatcher(deps: OomWatcherDeps): Runnable {
  const { host, nodeName, events, log } = deps;
  let isLogged = false;
  const failed = (why: string) => {
    if (!isLogged) log.warn({ why }, "cannot read the target's kernel log; SystemOOM events are unavailable");
    isLogged = true;
  };
  const onLine = (parse: ReturnType<typeof createOomParser>) => (line: string) => {
    const kill = parse(line);
    if (kill?.cgroup !== "/") return;
    const victim = kill.process && kill.pid ? `, victim process: ${kill.process}, pid: ${kill.pid}` : "";
    events.event(nodeReference(nodeName), "Warning", "SystemOOM", `System OOM encountered${victim}`);
  };
  const watch = async (signal: AbortSignal) => {
    try {
      const reader = await host.spawn(script(reading), signal);
      const output = await readLines(reader, onLine(createOomParser()), signal, maxLineBytes);
      if (!signal.aborted && output !== listening) failed(output);
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable")) return;
      failed(messageOf(error));
    }
  };
  return runPeriodically({ ...deps, name: "oom-watcher", intervalMs: retryDelayMs }, watch);
}

/** A process that the kernel's OOM killer ended. */
interface OomKill {
  /** cgroup whose limit was reached; `/` if the whole machine was out of memory. */
  readonly cgroup: string;
  /** Empty if the kernel did not log it. */
  readonly process: string;
  readonly pid: number;
}

const first = /invoked oom-killer:/;
/** Parts of the victim's line, in the kernel's order. Names of cgroups and processes may contain commas. */
const parts = ["oom-kill:constraint=", ",nodemask=", ",cpuset=", ",mems_allowed=", ",oom_memcg=", ",task_memcg="];
const lastParts = [",task=", ",pid=", ",uid="] as const;
/** The line that names the victim's cgroup in kernels before 5.0. */
const inCgroupBefore = /Task in .* killed as a result of limit of (?<cgroup>.*)/;
const last = /Killed process (?<pid>\d+) \((?<name>.+)\)/;

/** Parses the kernel's log line by line for OOM kills: a kill starts with the line of the allocating process and ends with that of the
 *  victim. Other lines may be in between. (cAdvisor's oomparser)
 *  @returns a function that takes one line after another, and returns the kill that a line completes. */
export function createOomParser(): (line: string) => OomKill | undefined {
  let cgroup: string | undefined;
  return (line) => {
    if (cgroup === undefined) {
      if (first.test(line)) cgroup = "/";
      return undefined;
    }
    cgroup = inCgroupBefore.exec(line)?.groups?.["cgroup"] ?? cgroup;
    const whole = victimOf(line);
    const victim = whole ?? last.exec(line)?.groups;
    if (!victim) return undefined;
    const kill = { cgroup: whole?.cgroup ?? cgroup, process: victim["name"] ?? "", pid: Number(victim["pid"]) };
    cgroup = undefined;
    return kill;
  };
}

/** Parses the victim's line. A regular expression would take time polynomial in the line's length. */
function victimOf(line: string): { readonly cgroup: string; readonly name: string; readonly pid: string } | undefined {
  const ends: number[] = [];
  for (const part of parts) {
    const at = line.indexOf(part, ends.at(-1) ?? 0);
    if (at < 0) return undefined;
    ends.push(at + part.length);
  }
  const begins: number[] = [];
  for (const part of lastParts.toReversed()) {
    const at = line.lastIndexOf(part, begins[0] ?? line.length);
    if (at < 0) return undefined;
    begins.unshift(at);
  }
  const [cgroupAt = 0, taskCgroupAt = 0] = ends.slice(-2);
  const [task = 0, pidAt = 0, uid = 0] = begins;
  const pid = line.slice(pidAt + lastParts[1].length, uid);
  if (task < taskCgroupAt || !/^\d+$/.test(pid)) return undefined;
  const cgroup = line.slice(cgroupAt, taskCgroupAt - ",task_memcg=".length);
  return { cgroup, name: line.slice(task + lastParts[0].length, pidAt), pid };
}

/** Sets this process's OOM score adjustment. If that is not permitted, it logs the kubelet's message and continues. Child processes inherit
 *  the score.
 *  @param score from −1000 (never killed) to 1000; lowering it requires CAP_SYS_RESOURCE.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html */
export async function setOwnOomScore(score: number, log: Logger, path = "/proc/self/oom_score_adj"): Promise<void> {
  try {
    if (Number(await readFile(path, "utf8")) !== score) await writeFile(path, String(score));
  } catch (error) {
    log.info({ why: messageOf(error), oomScoreAdj: score }, "Failed to ApplyOOMScoreAdj");
  }
}
