/** A process that the kernel's OOM killer ended. */
export interface OomKill {
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
/** Line of kernels before 5.0. */
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
