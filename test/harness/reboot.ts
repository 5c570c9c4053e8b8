import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { powerOff, powerOn } from "../machines/machine.ts";
import { createCgroup, removeCgroups } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { dockerExecRoot } from "./docker.ts";
import { listProcesses, type ProcessEntry, signalProcess } from "./processes.ts";
import { hasSystemd, isRemote, runtimeDaemons } from "./runtime-daemon.ts";
import { waitFor } from "./wait.ts";

/** A machine that can be switched off and on. */
export type Rebootable = Pick<
  Cluster,
  "layout" | "provider" | "killSshd" | "killRuntime" | "startRuntime" | "startSshd" | "runInside"
>;

/** Switches the cluster's machine off, as far as pods and their runtime can tell: no process of theirs is left, no connection of
 *  sshd, nothing of what lay in memory (mounts, cgroups, the runtime's own state). The control plane lives on: it is meant to be
 *  elsewhere. Where the agent runs on the machine, it has to have ended before. */
export async function switchOff(cluster: Rebootable): Promise<void> {
  const { layout } = cluster;
  if (hasSystemd(cluster.provider)) return powerOff(layout);
  if (isRemote(cluster.provider)) await cluster.killSshd();
  await cluster.killRuntime();
  await waitFor("the end of all pods' processes", () => {
    const left = podProcesses(cluster);
    for (const each of left) signalProcess(each, "SIGKILL");
    return left.length === 0;
  });
  const unmountAll = `sed -n 's|^[^ ]* [^ ]* [^ ]* [^ ]* \\(${layout.dir}/[^ ]*\\) .*|\\1|p' /proc/self/mountinfo | sort -r | while read -r path; do umount -l "$path"; done`;
  await cluster.runInside(["sh", "-ec", unmountAll]);
  const inMemory = [join(layout.containerd, "state"), join(layout.containerd, "runc"), dockerExecRoot(layout)];
  for (const folder of inMemory) rmSync(folder, { recursive: true, force: true });
  await removeCgroups(layout, []);
}

/** Switches it on again: another boot id, a runtime that knows no more than what lies on its disk, and sshd. */
export async function switchOn(cluster: Rebootable): Promise<{ readonly bootId: string }> {
  const { layout } = cluster;
  const bootId = hasSystemd(cluster.provider) ? await powerOn(layout) : await newBootId(cluster);
  await cluster.startRuntime();
  if (isRemote(cluster.provider)) await cluster.startSshd();
  return { bootId };
}

async function newBootId(cluster: Rebootable): Promise<string> {
  const { layout } = cluster;
  const bootId = randomUUID();
  const file = join(layout.dir, "boot-id");
  writeFileSync(file, `${bootId}\n`);
  const { code, stderr } = await cluster.runInside(["mount", "--bind", file, "/proc/sys/kernel/random/boot_id"]);
  if (code !== 0) throw new Error(`the boot id could not be changed: ${stderr}`);
  createCgroup(layout);
  return bootId;
}

/** The shims of containers, and the containers' first processes, with which all others of them end. */
function podProcesses({ layout, provider }: Rebootable): ProcessEntry[] {
  const tasks = runtimeDaemons[provider].tasks(layout);
  const all = listProcesses();
  return idsIn(tasks).flatMap((id) => {
    const first = all.find(({ pid }) => pid === firstProcessOf(join(tasks, id)));
    const shim = all.find(({ pid }) => pid === first?.parent && pid !== 1);
    return [shim, first].filter((each) => each !== undefined);
  });
}

function firstProcessOf(task: string): number | undefined {
  try {
    return Number(readFileSync(join(task, "init.pid"), "utf8"));
  } catch {
    return undefined;
  }
}

function idsIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
