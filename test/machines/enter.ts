import { insideArgv } from "../harness/namespaces.ts";
import { listProcesses, type ProcessId, textOf } from "../harness/processes.ts";
import { type Layout, readState } from "../harness/state.ts";
import { guestArgv, hasGuest } from "./guest-way.ts";

/** The systemd of a cluster's machine; undefined where it has none. */
export function machineOf(layout: Layout): ProcessId | undefined {
  return readState(layout)?.machine;
}

/** The command that runs `argv` on a machine, in all its namespaces. Its process is the parent of the one there, which is killed
 *  when the parent ends. */
export function machineArgv(machine: ProcessId, argv: readonly string[], cwd = "/"): string[] {
  const spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", `--wdns=${cwd}`];
  const dying = ["setpriv", "--pdeathsig=KILL"];
  return ["nsenter", `--target=${machine.pid}`, ...spaces, ...dying, ...argv];
}

/** The command that runs `argv` on the target: in its guest or on its machine with a systemd where it has one, else beside the
 *  daemons of the control plane. */
export function targetArgv(layout: Layout, holder: ProcessId, argv: readonly string[], cwd = "/"): string[] {
  if (hasGuest(layout)) return guestArgv(layout, argv, cwd);
  const machine = machineOf(layout);
  return machine ? machineArgv(machine, argv, cwd) : insideArgv(layout, holder, argv, cwd);
}

/** The process that has this number on the target. @returns its number here; the same where the target has no numbers of its own,
 *  undefined when there is none. */
export function outerPid(layout: Layout, inner: number): number | undefined {
  if (!machineOf(layout)) return inner;
  return listProcesses().find(({ pid }) => belongsTo(layout, pid) && innerPid(pid) === inner)?.pid;
}

function belongsTo({ cgroup }: Layout, pid: number): boolean {
  return textOf(`/proc/${pid}/cgroup`).includes(`:${cgroup}/`);
}

/** A process's number one namespace below this one. @see https://man7.org/linux/man-pages/man5/proc_pid_status.5.html */
function innerPid(pid: number): number {
  return Number(/^NSpid:\t\d+\t(\d+)/m.exec(textOf(`/proc/${pid}/status`))?.[1]);
}
