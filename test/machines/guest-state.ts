import { type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { sandboxImage } from "../harness/containerd-config.ts";
import { addresses } from "../harness/namespaces.ts";
import { must, run, start } from "../harness/processes.ts";
import type { GuestSizes } from "../harness/state.ts";
import { Hopeless, waitFor } from "../harness/wait.ts";
import { cached } from "./debian.ts";
import { type GuestImage, kindOf } from "./guest-image.ts";
import { guestLogin, shellLine, sshOptions } from "./guest-link.ts";
import { emulatorVersion, type Emulated, guestCable, guestDisks, qemuArgv, qmp } from "./qemu.ts";

/** A guest that has booted, as it was then: its disks, and its memory as a file. */
export interface SavedState {
  readonly folder: string;
  readonly memory: string;
}

/** Images that guests have from the start: their unpacking takes an emulated processor long. */
const preloaded = [
  sandboxImage,
  "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
  "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
];

/** Where Debian's containerd keeps them, until a guest's own has another folder. */
export const preloadedRoot = "/var/lib/containerd";

/** The state of a guest of these sizes right after its boot, made once: fresh guests go on from there.
 *  @param store the folder of images that registries serve. */
export async function savedState(
  image: GuestImage,
  { sizes, store }: { readonly sizes: GuestSizes; readonly store: string },
  say: (line: string) => void,
): Promise<SavedState> {
  const emulator = await emulatorVersion();
  const folder = await cached({
    kind: `${kindOf("state", sizes)}-${sizes.cpus}-${sizes.numa}-${sizes.threadsPerCore === undefined ? "" : `${sizes.threadsPerCore}threads-`}${sizes.memoryMiB}-${sizes.swapMiB}-${sizes.disksMiB.join("-")}`,
    recipe: [image.folder, store, sizes, emulator, qemuArgv({ image, sizes, folder: "", name: "" }), settling(sizes)],
    waiting: "booting the guest that others go on from: once per change of its recipe, about two minutes",
    say,
    make: (partial) => make(partial, image, sizes, store),
  });
  return { folder, memory: join(folder, "memory") };
}

/** Makes the disks of a guest that is to boot by itself, or to go on from a saved state: layers above what is there. */
export async function layerDisks(
  folder: string,
  sizes: GuestSizes,
  below: (file: string) => string,
  format: "raw" | "qcow2",
) {
  for (const file of guestDisks(sizes))
    await must(["qemu-img", "create", "-q", "-f", "qcow2", "-b", below(file), "-F", format, join(folder, file)]);
}

async function make(folder: string, image: GuestImage, sizes: GuestSizes, store: string): Promise<void> {
  mkdirSync(folder, { mode: 0o700 });
  await makeDisks(folder, image, sizes);
  const emulated: Emulated = { image, sizes, folder, name: "template" };
  const child = start(isolatedArgv(emulated), { stdio: ["ignore", "ignore", "inherit"], cwd: "/", detached: true });
  try {
    await once(child, "spawn");
    const inside = insideOf(child, image);
    await waitFor("the first guest to boot", () => up(child, inside), { timeoutMs: 900_000, everyMs: 1000 });
    const registry = serve(folder, child, store);
    try {
      await must(inside(["sh", "-ec", settling(sizes)]), { timeoutMs: 1_800_000 });
    } finally {
      if (registry.exitCode === null && registry.kill("SIGKILL")) await once(registry, "exit");
    }
    await save(folder);
    // Whoever finds it later takes it for whole: it is on the disk before it has its name.
    await must(["sync", "--file-system", folder], { timeoutMs: 300_000 });
  } finally {
    if (child.exitCode === null && child.kill("SIGKILL")) await once(child, "exit");
  }
}

/** What is done once, and would take each guest its time. */
function settling({ swapMiB }: GuestSizes): string {
  const swap = "mkswap /dev/vdb; echo '/dev/vdb none swap sw 0 0' >>/etc/fstab; systemctl daemon-reload; swapon --all";
  return [
    "systemctl is-system-running --wait || :",
    ...(swapMiB > 0 ? [swap] : []),
    ...pulling(),
    "sync",
    "fstrim /",
  ].join("\n");
}

const registryAddress = `${addresses.node}:${addresses.registryPort}`;

/** Pulls images under the names by which pods ask for them.
 *  @see https://github.com/containerd/containerd/blob/v1.6.20/docs/hosts.md */
function pulling(): string[] {
  const ctr = "ctr --namespace k8s.io images";
  const hosts = "/tmp/hosts/registry.k8s.io";
  return [
    `mkdir -p ${hosts}`,
    `echo '[host."http://${registryAddress}"]' >${hosts}/hosts.toml`,
    "systemctl start containerd",
    ...preloaded.flatMap((name) => [
      `${ctr} pull --hosts-dir /tmp/hosts ${name} >/dev/null </dev/null`,
      `digest=$(${ctr} list name==${name} | awk 'NR == 2 { print $3 }')`,
      `${ctr} tag ${name} ${name.replace(/:[^:]*$/, "")}@$digest`,
    ]),
    "systemctl stop containerd",
    "rm -r /tmp/hosts",
  ];
}

/** Starts a registry beside the first guest. */
function serve(folder: string, { pid }: ChildProcess, store: string): ChildProcess {
  const config = join(folder, "registry.yaml");
  const storage = { filesystem: { rootdirectory: store }, maintenance: { readonly: { enabled: true } } };
  writeFileSync(config, stringify({ version: 0.1, log: { level: "error" }, storage, http: { addr: registryAddress } }));
  const inside = ["nsenter", `--target=${pid}`, "--net"];
  return start([...dying, ...inside, "docker-registry", "serve", config], {
    stdio: ["ignore", "ignore", "inherit"],
    cwd: "/",
  });
}

async function makeDisks(folder: string, image: GuestImage, { swapMiB, disksMiB, ...sizes }: GuestSizes) {
  await layerDisks(folder, { ...sizes, swapMiB: 0, disksMiB: [] }, () => image.disk, "raw");
  const more = [
    ...(swapMiB > 0 ? [["swap", swapMiB] as const] : []),
    ...disksMiB.entries().map(([i, size]) => [`disk${i + 1}`, size] as const),
  ];
  for (const [file, size] of more)
    await must(["qemu-img", "create", "-q", "-f", "qcow2", join(folder, file), `${size}M`]);
}

/** What follows ends with the process that starts it. */
const dying = ["setpriv", "--pdeathsig=KILL"];

/** The emulator in a network of its own, which ends with this process. */
export function isolatedArgv(emulated: Emulated): string[] {
  const network = `ip link set lo up
    ip tuntap add ${guestCable} mode tap
    ip addr add ${addresses.node}/${addresses.nodePrefix} dev ${guestCable}
    ip link set ${guestCable} up
    exec "$@"`;
  return [...dying, "unshare", "--net", ...dying, "sh", "-ec", network, "sh", ...qemuArgv(emulated)];
}

/** A command line that runs another in a guest, whose emulator is a process of `isolatedArgv`. */
type Inside = (argv: readonly string[]) => string[];

export function insideOf({ pid }: ChildProcess, image: GuestImage): Inside {
  const network = ["nsenter", `--target=${pid}`, "--net"];
  return (argv) => [...network, "ssh", ...sshOptions(image), guestLogin, shellLine(argv)];
}

async function up(child: ChildProcess, inside: Inside): Promise<boolean> {
  if (child.exitCode !== null) throw new Hopeless(`the emulator ended with ${child.exitCode}`);
  return (await run(inside(["true"]))).code === 0;
}

/** Writes the guest's memory into a file, and ends it. */
async function save(folder: string): Promise<void> {
  const partial = join(folder, "memory.partial");
  await qmp(folder, "stop");
  await qmp(folder, "migrate-set-parameters", { "max-bandwidth": 8 * 2 ** 30 });
  await qmp(folder, "migrate", { uri: `exec:cat > ${partial}` });
  const written = async (): Promise<boolean> => {
    const { status } = (await qmp(folder, "query-migrate")) as { status?: string };
    if (status === "failed") throw new Hopeless("the emulator could not write the guest's memory");
    return status === "completed";
  };
  await waitFor("the guest's memory to be written", written, { timeoutMs: 300_000 });
  await qmp(folder, "quit");
  renameSync(partial, join(folder, "memory"));
}
