import { mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { insideArgv, networkArgv } from "../harness/namespaces.ts";
import { isAlive, must, type ProcessId, run, signalProcess, startDaemon } from "../harness/processes.ts";
import { servedStore } from "../harness/registry.ts";
import { runtimeDaemons } from "../harness/runtime-daemon.ts";
import { guestSizes, type Layout, readState, writeState } from "../harness/state.ts";
import { Hopeless, waitFor } from "../harness/wait.ts";
import { type GuestImage, guestImage } from "./guest-image.ts";
import { controlSocket, guestLogin, masterArgv, sharedArgv, shellLine } from "./guest-link.ts";
import { copyIn, guestArgv, guestFolder, guestRoot } from "./guest-way.ts";
import { joinNetwork } from "./guest-network.ts";
import { layerDisks, preloadedRoot, savedState } from "./guest-state.ts";
import { type Emulated, macOf, qemuArgv, qmp } from "./qemu.ts";
import { writeUnits } from "./units.ts";

/** Starts the target of a cluster or rig, whose network is there and whose runtime and keys have their files, for the first time: a
 *  machine with a kernel of its own, which goes on from a saved state. */
export async function startGuest(layout: Layout, say: (line: string) => void): Promise<void> {
  const began = performance.now();
  const { nodeName, guestSizes: sizes = guestSizes } = stateOf(layout);
  const image = await guestImage(say, sizes);
  const state = await savedState(image, { sizes, store: servedStore(layout) }, say);
  const folder = guestFolder(layout);
  mkdirSync(join(folder, "root"), { recursive: true });
  await layerDisks(folder, sizes, (file) => join(state.folder, file), "qcow2");
  await joinNetwork(layout);
  await emulate(layout, { image, sizes, folder, name: nodeName, memory: state.memory });
  await waitFor("the guest's memory to be read", async () => {
    const { status } = (await qmp(folder, "query-status")) as { status: string };
    return status !== "inmigrate";
  });
  await qmp(folder, "cont");
  await connect(layout, image);
  await must(guestArgv(layout, ["sh", "-ec", settling(nodeName)]));
  await must(networkArgv(layout, ["ip", "neigh", "flush", "all"]));
  await furnish(layout);
  await openFiles(layout);
  say(`the guest of ${layout.name} was up after ${((performance.now() - began) / 1000).toFixed(1)} s`);
}

/** Boots a guest that was switched off, from its disks. @returns its boot id. */
export async function bootGuest(layout: Layout): Promise<string> {
  const { nodeName, guestSizes: sizes = guestSizes } = stateOf(layout);
  const image = await guestImage(() => undefined, sizes);
  await emulate(layout, { image, sizes, folder: guestFolder(layout), name: nodeName });
  return await reached(layout, image);
}

/** Ends the guest as if its power had been cut, once what it has written is on its disks, which stay: the files that runtime and
 *  network plugins keep of a pod are worth nothing to them half written, whichever agent asks. */
export async function cutPower(layout: Layout): Promise<void> {
  const { guest } = stateOf(layout);
  if (!guest) return;
  await must(guestArgv(layout, ["sync"]));
  signalProcess(guest, "SIGKILL");
  await waitFor("the end of the guest", () => !isAlive(guest), { timeoutMs: 20_000, everyMs: 20 });
  await disconnect(layout);
}

function stateOf(layout: Layout) {
  const state = readState(layout);
  if (!state) throw new Error(`the state of cluster ${layout.name} is gone`);
  return state;
}

async function emulate(layout: Layout, emulated: Emulated): Promise<void> {
  rmSync(join(emulated.folder, "qmp"), { force: true });
  const log = join(layout.logs, "qemu.log");
  const guest = await startDaemon(networkArgv(layout, qemuArgv(emulated)), log, { cwd: "/" });
  writeState(layout, { ...stateOf(layout), guest });
  await waitFor("the emulator to listen", async () => {
    if (!isAlive(guest)) throw new Hopeless(`the emulator has ended: ${await must(["tail", "-n", "5", log])}`);
    return (await qmp(emulated.folder, "query-version")) !== undefined;
  });
}

/** Keeps one connection to the guest, with the runtime's socket at the end of one of the same path here. */
async function connect(layout: Layout, image: GuestImage): Promise<void> {
  const folder = guestFolder(layout);
  const socket = runtimeDaemons[stateOf(layout).provider].socket(layout);
  mkdirSync(dirname(socket), { recursive: true });
  const argv = networkArgv(layout, masterArgv(image, folder, [socket]));
  const log = join(layout.logs, "guest-link.log");
  let master: ProcessId | undefined;
  await waitFor(
    "the guest to let the harness in",
    async () => {
      if (!master || !isAlive(master)) master = await startDaemon(argv, log, { cwd: "/" });
      return (await run(guestArgv(layout, ["true"]))).code === 0;
    },
    { timeoutMs: 180_000, everyMs: 200, explain: () => must(["tail", "-n", "5", log, join(folder, "serial")]) },
  );
}

async function disconnect(layout: Layout): Promise<void> {
  const socket = controlSocket(guestFolder(layout));
  await run(["ssh", "-F", "none", "-S", socket, "-O", "exit", guestLogin]);
  rmSync(socket, { force: true });
}

/** Waits for a guest that boots. */
async function reached(layout: Layout, image: GuestImage): Promise<string> {
  await connect(layout, image);
  await openFiles(layout);
  await must(guestArgv(layout, ["systemctl", "is-system-running", "--wait"]), { timeoutMs: 180_000 }).catch(() => "");
  return (await must(guestArgv(layout, ["cat", "/proc/sys/kernel/random/boot_id"]))).trim();
}

/** What is a guest's own of what it goes on from. */
function settling(name: string): string {
  return `date -s @${(Date.now() / 1000).toFixed(3)} >/dev/null
    /usr/local/sbin/identify guest.name=${name} guest.mac=${macOf(name)}`;
}

/** Makes the folders that a target keeps, and the units of its daemons. */
async function furnish(layout: Layout): Promise<void> {
  const { containerd, docker, kubeletRoot, podLogs, staticPods, logs, resolvConf, ssh } = layout;
  const folders = [containerd, docker, kubeletRoot, podLogs, staticPods, logs, ssh];
  const units = join(guestFolder(layout), "units");
  writeUnits(layout, units);
  const sent = guestArgv(layout, ["tar", "-x", "--no-same-owner", "-C", "/"]);
  await must(["sh", "-ec", `tar -c -C ${units} . | ${shellLine(sent)}`]);
  await must(
    guestArgv(layout, [
      "sh",
      "-ec",
      `mkdir -p ${folders.join(" ")}; [ ! -d ${preloadedRoot} ] || mv -T ${preloadedRoot} ${join(containerd, "root")}; systemctl daemon-reload`,
    ]),
  );
  await copyIn(layout, [resolvConf]);
}

/** Mounts the guest's files where the cluster's own programs see them: nothing of it is remembered here from one look to the next. */
async function openFiles(layout: Layout): Promise<void> {
  const { holder } = stateOf(layout);
  if (!holder) throw new Error(`cluster ${layout.name} has no mount namespace`);
  const folder = guestFolder(layout);
  const options = [
    `ssh_command=${shellLine(sharedArgv(folder))}`,
    "direct_io",
    "dir_cache=no",
    "attr_timeout=0",
    "entry_timeout=0",
    "negative_timeout=0",
  ];
  const point = join(folder, "root");
  await run(insideArgv(layout, holder, ["umount", "--lazy", point]));
  const argv = ["sshfs", "-f", `${guestLogin}:/`, point, "-o", options.join(",")];
  await startDaemon(insideArgv(layout, holder, argv), join(layout.logs, "guest-files.log"), { cwd: "/" });
  await waitFor(
    "the guest's files",
    async () => (await run(["test", "-d", join(guestRoot(layout), "proc/1")])).code === 0,
    {
      timeoutMs: 60_000,
      everyMs: 100,
      explain: () => must(["cat", join(layout.logs, "guest-files.log")]),
    },
  );
}
