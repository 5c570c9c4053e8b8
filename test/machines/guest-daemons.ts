import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { must, run } from "../harness/processes.ts";
import type { Layout } from "../harness/state.ts";
import { waitFor } from "../harness/wait.ts";
import { copyIn, guestArgv, guestRoot } from "./guest-way.ts";
import { units } from "./units.ts";

/** Whether a role is one of the daemons that run in a guest. */
export function runsInGuest(role: string): boolean {
  return role in units;
}

/** Starts the unit of a role with the configuration that lies here, until it says that it is ready. */
export async function startInGuest(layout: Layout, role: string): Promise<void> {
  await copyIn(layout, configurationOf(layout, role).filter(existsSync));
  await must(guestArgv(layout, ["systemctl", "start", unitOf(role)]), { timeoutMs: 120_000 });
}

/** Sends the main process of a role a signal, and returns when it has been sent. */
export function signalInGuest(layout: Layout, role: string, signal: NodeJS.Signals): void {
  const [program = "", ...args] = guestArgv(layout, killing(role, signal));
  execFileSync(program, args);
}

/** Ends a role by a signal: its main process has ended, or it did not run. */
export async function endInGuest(layout: Layout, role: string, signal: NodeJS.Signals): Promise<void> {
  await run(guestArgv(layout, killing(role, signal)));
  const state = ["systemctl", "show", "--property=MainPID", "--value", unitOf(role)];
  await waitFor(`the end of ${role}`, async () => (await must(guestArgv(layout, state))).trim() === "0");
}

/** What a role has logged so far. */
export function guestLog(layout: Layout, role: string): string {
  return readFileSync(join(guestRoot(layout), layout.logs, `${role}.log`), "utf8");
}

function killing(role: string, signal: NodeJS.Signals): string[] {
  return ["systemctl", "kill", "--kill-whom=main", `--signal=${signal}`, unitOf(role)];
}

function unitOf(role: string): string {
  const unit = units[role];
  if (unit === undefined) throw new Error(`a guest has no unit for ${role}`);
  return unit;
}

/** Files and folders of this machine that a role reads. */
function configurationOf({ containerd, docker, ssh }: Layout, role: string): string[] {
  if (role === "sshd") return [ssh];
  if (role === "dockerd") return [join(docker, "daemon.json")];
  const ofCrio = ["crio.conf", "policy.json", "registries.conf"];
  return ["config.toml", "cni", "certs.d", ...ofCrio].map((name) => join(containerd, name));
}
