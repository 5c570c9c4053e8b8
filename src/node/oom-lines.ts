/** A process that the kernel ended for want of memory. */
export interface OomKill {
  /** cgroup whose limit was reached; `/` when the whole machine was short. */
  readonly cgroup: string;
  /** Empty when the kernel did not say. */
  readonly process: string;
  readonly pid: number;
}

const first = /invoked oom-killer:/;
const inCgroup =
  /oom-kill:constraint=.*,nodemask=.*,cpuset=.*,mems_allowed=.*,oom_memcg=(?<cgroup>.*),task_memcg=.*,task=(?<name>.*),pid=(?<pid>\d+),uid=/;
/** Kernels before 5.0. */
const inCgroupBefore = /Task in .* killed as a result of limit of (?<cgroup>.*)/;
const last = /Killed process (?<pid>\d+) \((?<name>.+)\)/;

/** Reads the kernel's log, line by line, for processes that the kernel ended: a kill begins with the line of the process that
 *  wanted memory and ends with that of the victim. Lines of other things may stand in between. (cAdvisor's oomparser)
 *  @returns what is given one line after another, and returns the kill that a line completes. */
export function createOomParser(): (line: string) => OomKill | undefined {
  let cgroup: string | undefined;
  return (line) => {
    if (cgroup === undefined) {
      if (first.test(line)) cgroup = "/";
      return undefined;
    }
    cgroup = inCgroupBefore.exec(line)?.groups?.["cgroup"] ?? cgroup;
    const whole = inCgroup.exec(line)?.groups;
    const victim = whole ?? last.exec(line)?.groups;
    if (!victim) return undefined;
    const kill = { cgroup: whole?.["cgroup"] ?? cgroup, process: victim["name"] ?? "", pid: Number(victim["pid"]) };
    cgroup = undefined;
    return kill;
  };
}
