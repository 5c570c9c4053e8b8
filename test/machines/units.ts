import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { enterCgroups } from "../harness/cgroups.ts";
import { identify, isAlive, must, type ProcessId, startDaemon, textOf } from "../harness/processes.ts";
import { crioCommand } from "../harness/crio.ts";
import { activatedSshdCommand, dropbearCommand, sshdCommand } from "../harness/sshd.ts";
import type { Layout } from "../harness/state.ts";
import { Hopeless, waitFor } from "../harness/wait.ts";
import { maskUnits } from "./debian.ts";
import { machineArgv, machineOf, outerPid } from "./enter.ts";
import { builtPrograms } from "./built.ts";
import { builtOf, hasCrio, initOf, type SshServer, systemOf } from "./systems.ts";

/** Debian's units of the daemons that a test starts, kills and reads the log of, by their role. */
export const units: Readonly<Record<string, string>> = {
  containerd: "containerd.service",
  dockerd: "docker.service",
  sshd: "ssh.service",
};

/** The unit of a role on that target; undefined where no unit has the role. */
function unitOf(layout: Layout, role: string): string | undefined {
  return role === "sshd" && systemOf(layout).sshServer === "dropbear" ? "dropbear.service" : units[role];
}

const sshCommands: Readonly<Record<SshServer, (layout: Layout) => string>> = {
  openssh: sshdCommand,
  "openssh-socket": activatedSshdCommand,
  dropbear: dropbearCommand,
};

/** The command of a role's daemon, with the cluster's configuration. */
function commandOf(layout: Layout, role: string): string {
  const commands: Readonly<Record<string, string>> = {
    containerd: hasCrio(layout)
      ? crioCommand(layout, builtPrograms)
      : `/usr/bin/containerd --config ${join(layout.containerd, "config.toml")}`,
    dockerd: `${builtOf(layout) === "docker-29" ? builtPrograms : "/usr/sbin"}/dockerd --config-file ${join(layout.docker, "daemon.json")}`,
    sshd: sshCommands[systemOf(layout).sshServer](layout),
  };
  const command = commands[role];
  if (command === undefined) throw new Error(`a machine has no daemon for ${role}`);
  return command;
}

/** Files that have Debian's units run the daemons with the cluster's configurations and logs, and leave a daemon that was killed as it
 *  is: path on the machine and text. */
export function unitFiles(layout: Layout): (readonly [string, string])[] {
  return Object.keys(units).map((role) => {
    const lines = [
      "[Unit]",
      "StartLimitIntervalSec=0",
      "[Service]",
      // It says nothing to systemd once it listens.
      ...(role === "sshd" && systemOf(layout).sshServer === "openssh-socket" ? ["Type=simple"] : []),
      "ExecStartPre=",
      "ExecStart=",
      `ExecStart=${commandOf(layout, role)}`,
      "Restart=no",
      `StandardOutput=append:${join(layout.logs, `${role}.log`)}`,
      "StandardError=inherit",
      "",
    ];
    return [`/etc/systemd/system/${unitOf(layout, role)}.d/test.conf`, lines.join("\n")];
  });
}

/** Writes them below the folder that is above /etc of the machine. */
export function writeUnits(layout: Layout, above: string): void {
  for (const [path, text] of unitFiles(layout)) {
    mkdirSync(dirname(join(above, path)), { recursive: true });
    writeFileSync(join(above, path), text);
  }
  if (systemOf(layout).sshServer === "dropbear") maskUnits(above, ["ssh.service", "ssh.socket"]);
}

/** Starts the daemon of a role on a machine, where it does not run. @returns its main process, by its number here. */
export async function startOnMachine(layout: Layout, role: string): Promise<ProcessId> {
  const machine = machineOf(layout);
  if (!machine) throw new Error(`${layout.name} has no machine`);
  return initOf(layout) === "systemd" ? startUnit(layout, machine, role) : startBare(layout, machine, role);
}

async function startUnit(layout: Layout, machine: ProcessId, role: string): Promise<ProcessId> {
  const unit = unitOf(layout, role);
  if (unit === undefined) throw new Error(`the machine of ${layout.name} has no unit for ${role}`);
  await must(machineArgv(machine, ["systemctl", "start", unit]));
  const inner = await must(machineArgv(machine, ["systemctl", "show", "--property=MainPID", "--value", unit]));
  const pid = outerPid(layout, Number(inner));
  const id = pid === undefined ? undefined : identify(pid);
  if (!id) throw new Error(`${unit} of ${layout.name} has ended: see ${join(layout.logs, `${role}.log`)}`);
  return id;
}

/** Starts a daemon below the machine's own cgroup, with nothing but the machine's PATH. */
async function startBare(layout: Layout, machine: ProcessId, role: string): Promise<ProcessId> {
  const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  const command = ["env", "-i", path, ...commandOf(layout, role).split(" ")];
  const script = [...enterCgroups(layout), 'exec "$@"'].join("\n");
  const log = join(layout.logs, `${role}.log`);
  const parent = await startDaemon(["sh", "-ec", script, "sh", ...machineArgv(machine, command)], log, { cwd: "/" });
  return waitFor(
    `the process of ${role}`,
    () => {
      if (!isAlive(parent)) throw new Hopeless(`${role} of ${layout.name} has ended: see ${log}`);
      const child = Number.parseInt(textOf(`/proc/${parent.pid}/task/${parent.pid}/children`), 10);
      return Number.isNaN(child) ? undefined : identify(child);
    },
    { timeoutMs: 10_000, everyMs: 10 },
  );
}
