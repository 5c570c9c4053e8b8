import { rmSync } from "node:fs";
import { join } from "node:path";
import { removeCgroups } from "../harness/cgroups.ts";
import { runcRoot } from "../harness/containerd-config.ts";
import { dockerExecRoot } from "../harness/docker.ts";
import { isAlive, signalProcess } from "../harness/processes.ts";
import { writeSshdConfig } from "../harness/sshd.ts";
import { type Layout, ownsKernel } from "../harness/state.ts";
import { waitFor } from "../harness/wait.ts";
import { boot, createDisk } from "./boot.ts";
import { machineOf } from "./enter.ts";
import { bootGuest, cutPower, startGuest } from "./guest.ts";
import { hasGuest } from "./guest-way.ts";

/** Boots the target of a cluster or rig, whose network is there and whose runtime and keys have their files, for the first time. */
export async function startMachine(layout: Layout, say: (line: string) => void): Promise<void> {
  writeSshdConfig(layout);
  if (ownsKernel(layout)) return startGuest(layout, say);
  await createDisk(layout, say);
  await boot(layout);
}

/** Boots it again after `powerOff`. @returns its boot id. */
export function powerOn(layout: Layout): Promise<string> {
  return hasGuest(layout) ? bootGuest(layout) : boot(layout);
}

/** Ends the machine as if its power had been cut: no process of it is left, no mount, no cgroup, nothing of what lay in memory. Its
 *  disk stays, and its network, which is the cluster's. */
export async function powerOff(layout: Layout): Promise<void> {
  if (hasGuest(layout)) return cutPower(layout);
  const machine = machineOf(layout);
  if (!machine) return;
  signalProcess(machine, "SIGKILL");
  await waitFor(`the end of systemd of ${layout.name}`, () => !isAlive(machine), { timeoutMs: 20_000, everyMs: 20 });
  await removeCgroups(layout, []);
  for (const folder of [join(layout.containerd, "state"), runcRoot(layout), dockerExecRoot(layout)])
    rmSync(folder, { recursive: true, force: true });
}
