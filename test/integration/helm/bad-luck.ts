import { join } from "node:path";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { createCgroup } from "../../harness/cgroups.ts";
import { chart } from "../../harness/helm.ts";
import { type HelmLab, loginSecret } from "../../harness/helm-lab.ts";
import { run } from "../../harness/processes.ts";
import { insideArgv } from "../../harness/namespaces.ts";
import { type Rebootable, switchOff, switchOn } from "../../harness/reboot.ts";
import { runtimeDaemons } from "../../harness/runtime-daemon.ts";
import { readState } from "../../harness/state.ts";
import { graftedMachine } from "./grafted-machine.ts";

/** Another release of the cluster, in a namespace of its own. */
export interface RivalRelease extends AsyncDisposable {
  /** Creates an object of its namespace for a machine of the lab. */
  claim(name: string, spec?: Partial<GraftedNode["spec"]>): Promise<unknown>;
  object(name: string): Promise<GraftedNode>;
  /** Waits until an object's condition has this reason. @returns its message. */
  untilSays(name: string, type: string, reason: string): Promise<string>;
  /** Lets the release believe that its objects had many owners before. */
  setEpoch(name: string, epoch: number): Promise<unknown>;
  /** Deletes its objects, as long as it runs. */
  give(...names: readonly string[]): Promise<unknown>;
}

const rival = "rival";
const inRival = `--namespace=${rival}`;

/** Installs it. Disposing it uninstalls it. */
export async function installRival({ cluster, edge, mustHelm }: HelmLab): Promise<RivalRelease> {
  const secret = loginSecret(edge) as { readonly metadata: object };
  await cluster.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: rival } },
    { ...secret, metadata: { ...secret.metadata, namespace: rival } },
  ]);
  const values = ["--set=fleet.enabled=true", "--set=fleet.nodeNames={edge-*,rival-*}"];
  await mustHelm(["install", rival, chart, inRival, "--wait", "--timeout=120s", ...values]);
  const object = async (name: string) =>
    JSON.parse(await cluster.mustKubectl(["get", "gn", name, inRival, "--output=json"])) as GraftedNode;
  return {
    object,
    claim(name, spec) {
      const made = graftedMachine(edge, name, spec);
      return cluster.apply([{ ...made, metadata: { name, namespace: rival } }]);
    },
    untilSays: (name, type, reason) =>
      cluster.waitFor(
        `${name} of the other release to say ${reason}`,
        async () => {
          const { status } = await object(name);
          const found = status?.conditions?.find((each) => each.type === type);
          const isOfOwner = status?.owner !== undefined && status.observedEpoch === status.owner.epoch;
          return isOfOwner && found?.reason === reason && found.message;
        },
        {
          timeoutMs: 60_000,
          explain: async () =>
            JSON.stringify((await object(name)).status) +
            (await cluster.kubectl(["logs", inRival, `deployment/${rival}-graftlet`])).stdout.slice(-4_000),
        },
      ),
    setEpoch(name, epoch) {
      const owner = { replica: "", uid: "", epoch, since: new Date().toISOString() };
      const patch = `--patch=${JSON.stringify({ status: { owner } })}`;
      return cluster.mustKubectl(["patch", "gn", name, inRival, "--subresource=status", "--type=merge", patch]);
    },
    give: (...names) =>
      cluster.mustKubectl(["delete", "gn", ...names, inRival, "--timeout=60s"], { timeoutMs: 70_000 }),
    async [Symbol.asyncDispose]() {
      await mustHelm(["uninstall", rival, inRival, "--wait", "--timeout=60s"]);
    },
  };
}

/** Root directory on the machine that a GraftedNode has unless it names one. */
export function rootOf(machine: string): string {
  return `/var/lib/kubelet/${machine}`;
}

/** What the lock of a machine's root directory records: the object's UID and the owner's epoch. */
export async function recordedOwner({ edge }: HelmLab, machine: string): Promise<string> {
  const file = join(rootOf(machine), "graftlet", "token");
  return (await edge.mustInside(["sh", "-c", `cat ${file} 2>/dev/null || true`])).trim();
}

/** A process on the lab's machine that nobody knows, and the lines with which a lock's records may name it: from before the machine's last
 *  boot, and as another process with its number. */
export async function startBystander({ edge }: HelmLab) {
  const said = await edge.mustInside([
    "sh",
    "-c",
    "sleep 3600 </dev/null >/dev/null 2>&1 & cut -d' ' -f1,22 /proc/$!/stat; cat /proc/sys/kernel/random/boot_id",
  ]);
  const [pid = "", started = "", boot = ""] = said.split(/\s+/);
  return {
    records: [`${pid} ${started} ${boot}`, `${pid} ${Number(started) - 1} ${boot}`],
    isAlive: async () => (await run(["kill", "-0", pid])).code === 0,
    [Symbol.dispose]: () => process.kill(Number(pid), "SIGKILL"),
  };
}

/** Appends lines to the records of the connections over which the machines are served. */
export async function recordConnections({ edge }: HelmLab, machines: readonly string[], lines: readonly string[]) {
  const append = 'for file in "$0"/connection.*; do printf "%s\\n" "$@" >>"$file"; done';
  for (const name of machines) await edge.mustInside(["sh", "-ec", append, join(rootOf(name), "graftlet"), ...lines]);
}

/** Switches the lab's machine off and on again: no process of its pods, its runtime or sshd is left, nor what lay in memory, below /run and in
 *  mounts. @param whileOff is done meanwhile. */
export async function powerCycle(lab: HelmLab, machines: readonly string[], whileOff: () => Promise<unknown>) {
  const { edge } = lab;
  const { layout, daemons } = edge;
  const holder = readState(layout)?.holder;
  if (!holder) throw new Error("the machine has no mount namespace");
  const machine: Rebootable = {
    layout,
    provider: "ssh",
    killSshd: daemons.killSshd,
    killRuntime: () => daemons.kill(runtimeDaemons.ssh.role),
    startRuntime: daemons.startRuntime,
    startSshd: daemons.startSshd,
    runInside: (argv, options) => run(insideArgv(layout, holder, argv), options),
  };
  await switchOff(machine);
  // Mounts that the layer over /run hides are not the machine's.
  const inMemory = `[ "$(stat -f -c %T /run)" = overlayfs ]
awk '$5 ~ "^/(run|var/lib/kubelet)/" { print $5 }' /proc/self/mountinfo | sort -r | while read -r path; do umount -l "$path" 2>/dev/null || true; done
links=$(find /run -xdev -type l -name '*.sock' | while read -r link; do echo "$link $(readlink "$link")"; done)
find /run -xdev -mindepth 1 -delete
mkdir -p /run/sshd
echo "$links" | while read -r link to; do mkdir -p "$(dirname "$link")"; ln -s "$to" "$link"; done`;
  await edge.mustInside(["sh", "-ec", inMemory]);
  await whileOff();
  const { bootId } = await switchOn(machine);
  for (const name of machines) createCgroup({ ...layout, cgroup: join(layout.cgroup, name) });
  return bootId;
}
