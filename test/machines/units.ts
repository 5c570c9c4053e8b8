import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { must, type ProcessId, identify } from "../harness/processes.ts";
import { dropbearCommand } from "../harness/sshd.ts";
import { type Layout, type MachineSystem, readState } from "../harness/state.ts";
import { maskUnits } from "./debian.ts";
import { machineArgv, machineOf, outerPid } from "./enter.ts";

/** Debian's units of the daemons that a test starts, kills and reads the log of, by their role. */
export const units: Readonly<Record<string, string>> = {
  containerd: "containerd.service",
  dockerd: "docker.service",
  sshd: "ssh.service",
};

/** What the target is made of, where it is a machine with a systemd. */
export function systemOf(layout: Layout): MachineSystem {
  return readState(layout)?.machineSystem ?? { system: "debian-12", sshServer: "openssh" };
}

/** The unit of a role on that target; undefined where no unit has the role. */
function unitOf(layout: Layout, role: string): string | undefined {
  return role === "sshd" && systemOf(layout).sshServer === "dropbear" ? "dropbear.service" : units[role];
}

/** Files that have Debian's units run the daemons with the cluster's configurations and logs, and leave a daemon that was killed as it
 *  is: path on the machine and text. */
export function unitFiles(layout: Layout): (readonly [string, string])[] {
  const commands: Readonly<Record<string, string>> = {
    containerd: `/usr/bin/containerd --config ${join(layout.containerd, "config.toml")}`,
    dockerd: `/usr/sbin/dockerd --config-file ${join(layout.docker, "daemon.json")}`,
    sshd:
      systemOf(layout).sshServer === "dropbear"
        ? dropbearCommand(layout)
        : `/usr/sbin/sshd -D -e -f ${join(layout.ssh, "sshd_config")}`,
  };
  return Object.keys(units).map((role) => {
    const lines = [
      "[Unit]",
      "StartLimitIntervalSec=0",
      "[Service]",
      "ExecStartPre=",
      "ExecStart=",
      `ExecStart=${commands[role]}`,
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

/** Starts the unit of a role, where it does not run. @returns its main process, by its number here. */
export async function startUnit(layout: Layout, role: string): Promise<ProcessId> {
  const machine = machineOf(layout);
  const unit = unitOf(layout, role);
  if (!machine || unit === undefined) throw new Error(`the machine of ${layout.name} has no unit for ${role}`);
  await must(machineArgv(machine, ["systemctl", "start", unit]));
  const inner = await must(machineArgv(machine, ["systemctl", "show", "--property=MainPID", "--value", unit]));
  const pid = outerPid(layout, Number(inner));
  const id = pid === undefined ? undefined : identify(pid);
  if (!id) throw new Error(`${unit} of ${layout.name} has ended: see ${join(layout.logs, `${role}.log`)}`);
  return id;
}
