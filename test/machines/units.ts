import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { must, type ProcessId, identify } from "../harness/processes.ts";
import { type Layout } from "../harness/state.ts";
import { machineArgv, machineOf, outerPid } from "./enter.ts";

/** Debian's units of the daemons that a test starts, kills and reads the log of, by their role. */
const units: Readonly<Record<string, string>> = { containerd: "containerd.service", sshd: "ssh.service" };

/** Has Debian's units run the daemons with the cluster's configurations and logs, and leave a daemon that was killed as it is.
 *  @param etc the folder above /etc of the machine. */
export function writeUnits(layout: Layout, above: string): void {
  const commands: Readonly<Record<string, readonly string[]>> = {
    containerd: [
      "ExecStartPre=",
      "ExecStart=",
      `ExecStart=/usr/bin/containerd --config ${join(layout.containerd, "config.toml")}`,
    ],
    sshd: ["ExecStartPre=", "ExecStart=", `ExecStart=/usr/sbin/sshd -D -e -f ${join(layout.ssh, "sshd_config")}`],
  };
  for (const [role, unit] of Object.entries(units)) {
    const folder = join(above, "etc/systemd/system", `${unit}.d`);
    const lines = [
      "[Unit]",
      "StartLimitIntervalSec=0",
      "[Service]",
      ...(commands[role] ?? []),
      "Restart=no",
      `StandardOutput=append:${join(layout.logs, `${role}.log`)}`,
      "StandardError=inherit",
      "",
    ];
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "test.conf"), lines.join("\n"));
  }
}

/** Starts the unit of a role, where it does not run. @returns its main process, by its number here. */
export async function startUnit(layout: Layout, role: string): Promise<ProcessId> {
  const machine = machineOf(layout);
  const unit = units[role];
  if (!machine || unit === undefined) throw new Error(`the machine of ${layout.name} has no unit for ${role}`);
  await must(machineArgv(machine, ["systemctl", "start", unit]));
  const inner = await must(machineArgv(machine, ["systemctl", "show", "--property=MainPID", "--value", unit]));
  const pid = outerPid(layout, Number(inner));
  const id = pid === undefined ? undefined : identify(pid);
  if (!id) throw new Error(`${unit} of ${layout.name} has ended: see ${join(layout.logs, `${role}.log`)}`);
  return id;
}
