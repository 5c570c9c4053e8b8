import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createMachineCgroup, enterCgroups } from "../harness/cgroups.ts";
import {
  networkArgv,
  noNameServer,
  plainRegistryHost,
  privateRegistryHost,
  settledSettings,
} from "../harness/namespaces.ts";
import { identify, isAlive, must, type ProcessId, run, startDaemon, textOf } from "../harness/processes.ts";
import { type Layout, readState, writeState } from "../harness/state.ts";
import { writeDropbearFiles } from "../harness/sshd.ts";
import { buildRuntime } from "../harness/tools.ts";
import { Hopeless, waitFor } from "../harness/wait.ts";
import { installBuilt } from "./built.ts";
import { machineArgv } from "./enter.ts";
import { systemRoot } from "./root.ts";
import { initOf, type System, systemOf, systems } from "./systems.ts";
import { writeUnits } from "./units.ts";

/** Makes a machine's disk, a layer of its own above its shared system, with its names and the units of its runtime and its sshd. */
export async function createDisk(layout: Layout, say: (line: string) => void): Promise<void> {
  const { folder, upper } = disk(layout);
  const { system, sshServer } = systemOf(layout);
  const root = await systemRoot(system, say);
  const hostname = readState(layout)?.nodeName ?? layout.name;
  for (const part of ["upper/etc", "work", "root"]) mkdirSync(join(folder, part), { recursive: true });
  writeFileSync(join(folder, "lower"), root);
  const files = {
    hostname: `${hostname}\n`,
    hosts: `127.0.0.1 localhost ${hostname} ${privateRegistryHost} ${plainRegistryHost}\n`,
    "resolv.conf": noNameServer,
    "machine-id": `${randomUUID().replaceAll("-", "")}\n`,
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(upper, "etc", name), content);
  writeUnits(layout, upper);
  const { built } = systems[system];
  if (built) installBuilt(built, await buildRuntime(built, say), upper);
  if (sshServer === "dropbear") await writeDropbearFiles(layout, upper);
}

/** Process 1 of a machine: its command, and whether it has come to be. The one that is no init only takes the ends of its children. */
const processes: Readonly<
  Record<System["init"], { readonly command: string; readonly isUp: (pid: number) => boolean }>
> = {
  systemd: {
    command: "/lib/systemd/systemd --show-status=0 --log-target=journal",
    isUp: (pid) => textOf(`/proc/${pid}/comm`) === "systemd\n",
  },
  none: {
    command: "sh -c 'mkdir -p /run/sshd /run/lock; : > /run/up; while :; do sleep 3600 & wait $!; done'",
    isUp: (pid) => existsSync(`/proc/${pid}/root/run/up`),
  },
};

/** Boots the machine: systemd is process 1 of namespaces of its own, in the cluster's network, with the cluster's folder at the same
 *  path as outside and the cluster's cgroup as the root of all cgroups. Throws when systemd has not started everything, or has ended.
 *  @returns the boot id. */
export async function boot(layout: Layout): Promise<string> {
  const { folder } = disk(layout);
  const bootId = randomUUID();
  createMachineCgroup(layout);
  writeFileSync(join(folder, "boot-id"), `${bootId}\n`);
  for (const [path, value] of Object.entries(settledSettings)) writeFileSync(settledFile(folder, path), `${value}\n`);
  const log = join(layout.logs, "systemd.log");
  const unshare = [
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--uts",
    "--ipc",
    "--propagation",
    "private",
  ];
  const script = [...enterCgroups(layout), 'exec unshare --cgroup sh -ec "$1"'].join("\n");
  const argv = [...unshare, "sh", "-ec", script, "sh", setUp(layout)];
  const parent = await startDaemon(networkArgv(layout, argv), log, { cwd: "/" });
  const tail = () => must(["tail", "-n", "15", log]);
  const { isUp } = processes[initOf(layout)];
  const machine = await waitFor(
    `process 1 of ${layout.name} to be there`,
    async () => {
      if (!isAlive(parent)) throw new Hopeless(`the machine could not be made: ${await tail()}`);
      const pid = Number.parseInt(readFileSync(`/proc/${parent.pid}/task/${parent.pid}/children`, "utf8"), 10);
      return isUp(pid) && identify(pid);
    },
    { timeoutMs: 20_000, everyMs: 20, explain: tail },
  );
  const state = readState(layout);
  if (state) writeState(layout, { ...state, machine });
  if (initOf(layout) === "systemd") await allStarted(layout, machine, tail);
  return bootId;
}

async function allStarted({ name }: Layout, machine: ProcessId, tail: () => Promise<string>): Promise<void> {
  const systemctl = async (verb: string) => (await run(machineArgv(machine, ["systemctl", verb]))).stdout;
  await waitFor(
    `systemd of ${name} to have started everything`,
    async () => {
      if (!isAlive(machine)) throw new Hopeless(`systemd has ended: ${await tail()}`);
      return /^(running|degraded)$/m.test(await systemctl("is-system-running"));
    },
    { timeoutMs: 60_000, everyMs: 50, explain: () => systemctl("list-jobs") },
  );
}

function disk(layout: Layout): { readonly folder: string; readonly upper: string } {
  const folder = join(layout.dir, "machine");
  return { folder, upper: join(folder, "upper") };
}

function settledFile(folder: string, path: string): string {
  return join(folder, path.slice(1).replaceAll("/", "-"));
}

/** Mounts a machine's root with all that the kernel shows of itself, and becomes its systemd. What of /proc/sys is this machine's
 *  as well is read-only, as in any container. */
function setUp(layout: Layout): string {
  const { folder, upper } = disk(layout);
  const root = join(folder, "root");
  const lower = readFileSync(join(folder, "lower"), "utf8");
  const settled = ["/proc/sys/kernel/random/boot_id", ...Object.keys(settledSettings)];
  const files = settled.map((path) => [
    path.endsWith("boot_id") ? join(folder, "boot-id") : settledFile(folder, path),
    path,
  ]);
  return [
    `mount -t overlay overlay -o lowerdir=${lower},upperdir=${upper},workdir=${join(folder, "work")} ${root}`,
    `cd ${root}`,
    "hostname $(cat etc/hostname)",
    "mount -t proc proc proc",
    "mount --bind proc/sys proc/sys",
    "mount --bind proc/sys/net proc/sys/net",
    "mount -o remount,bind,ro proc/sys",
    "[ ! -e proc/sysrq-trigger ] || mount --bind /dev/null proc/sysrq-trigger",
    ...files.map(([file, path]) => `mount --bind ${file} .${path}`),
    "mount -t sysfs -o ro sysfs sys",
    "mount -t tmpfs -o mode=0755 tmpfs run",
    "mount -t tmpfs -o mode=1777 tmpfs tmp",
    ...devices(),
    ...cgroups(),
    `mkdir -p .${layout.dir}`,
    `mount --bind ${layout.dir} .${layout.dir}`,
    "mkdir -p old",
    "pivot_root . old",
    "umount -l /old",
    "mount --make-rshared /",
    `exec env -i container=machine PATH=/usr/sbin:/usr/bin:/sbin:/bin ${processes[initOf(layout)].command}`,
  ].join("\n");
}

function devices(): string[] {
  const names = ["null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse"];
  return [
    "mount -t tmpfs -o mode=0755 tmpfs dev",
    "mkdir dev/pts dev/shm dev/mqueue",
    "mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts",
    "ln -s pts/ptmx dev/ptmx",
    "ln -s /proc/self/fd dev/fd",
    `for name in ${names.join(" ")}; do [ ! -e /dev/$name ] || { touch dev/$name; mount --bind /dev/$name dev/$name; }; done`,
  ];
}

/** The same hierarchies as on this machine, as the cgroup namespace shows them. */
function cgroups(): string[] {
  const v1 = readFileSync("/proc/self/cgroup", "utf8")
    .split("\n")
    .flatMap((line) => line.split(":")[1] ?? [])
    .filter((controllers) => controllers !== "");
  if (v1.length === 0) return ["mount -t cgroup2 cgroup sys/fs/cgroup"];
  return [
    "mount -t tmpfs -o mode=0755 cgroup sys/fs/cgroup",
    ...v1.flatMap((controllers) => {
      const names = controllers.replace(/^name=/, "");
      const options = names === controllers ? controllers : `none,${controllers}`;
      const links = names.includes(",") ? names.split(",") : [];
      return [
        `mkdir sys/fs/cgroup/${names}`,
        `mount -t cgroup -o ${options} cgroup sys/fs/cgroup/${names}`,
        ...links.map((name) => `ln -s ${names} sys/fs/cgroup/${name}`),
      ];
    }),
  ];
}
