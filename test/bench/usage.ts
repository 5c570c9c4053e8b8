import { readFileSync } from "node:fs";

/** The kernel's ticks in a second, in what it tells of processes. @see https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html */
const ticksPerSecond = 100;

/** Processor time that a process and the children that it has waited for have taken so far, seconds. */
export function cpuSeconds(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8");
  // Behind the program's name, which may hold anything: fields 14 to 17 of the line are the 12th to 15th.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / ticksPerSecond;
}
