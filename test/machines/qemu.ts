import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { must } from "../harness/processes.ts";
import type { GuestSizes } from "../harness/state.ts";
import type { GuestImage } from "./guest-image.ts";
import { guestSystems } from "./guest-systems.ts";

/** One guest as its emulator is told of it. */
export interface Emulated {
  readonly image: GuestImage;
  readonly sizes: GuestSizes;
  /** Holds its disks (`guestDisks`), its socket for commands and what it writes to its serial line. */
  readonly folder: string;
  /** Its hostname. */
  readonly name: string;
  /** File of the memory that it goes on from; it boots unless given. */
  readonly memory?: string;
}

const emulator = "qemu-system-x86_64";

/** The device in its cluster's network that is the guest's cable. */
export const guestCable = "guest0";

/** A guest's disks by the names of their files, in the order in which its kernel finds them: / is the first. */
export function guestDisks({ swapMiB, disksMiB }: GuestSizes): string[] {
  return ["disk", ...(swapMiB > 0 ? ["swap"] : []), ...disksMiB.map((_, index) => `disk${index + 1}`)];
}

/** The command line of the emulator. It ends with the guest's power, not with a reboot.
 *  @see https://www.qemu.org/docs/master/system/invocation.html */
export function qemuArgv({ image, sizes, folder, name, memory }: Emulated): string[] {
  const { memoryMiB, selinux, system } = sizes;
  const ofSystem = system && guestSystems[system].kernelArguments;
  const options: readonly (readonly [string, string])[] = [
    ["name", name],
    ["M", "q35,hpet=off"],
    ["accel", "tcg,thread=multi,tb-size=512"],
    ["cpu", processor(sizes)],
    ["m", String(memoryMiB)],
    ["smp", topology(sizes)],
    ["display", "none"],
    ["device", "virtio-rng-pci"],
    ["serial", `file:${join(folder, "serial")}`],
    ["qmp", `unix:${join(folder, "qmp")},server=on,wait=off`],
    ...guestDisks(sizes).map((file) => ["drive", drive(join(folder, file))] as const),
    ["netdev", `tap,id=lan,ifname=${guestCable},script=no,downscript=no`],
    ["device", `virtio-net-pci,netdev=lan,romfile=,mac=${macOf(name)}`],
    ...nodesOf(sizes),
    ["kernel", image.kernel],
    ["initrd", image.initrd],
    [
      "append",
      [
        kernelArguments,
        ...(selinux ? [selinuxArguments] : []),
        ...(ofSystem ? [ofSystem] : []),
        `guest.name=${name}`,
        `guest.mac=${macOf(name)}`,
      ].join(" "),
    ],
    ...(memory === undefined ? [] : [["incoming", `exec:cat ${memory}`] as const]),
  ];
  const words = options.flatMap(([option, value]) => [`-${option}`, value]);
  return [emulator, "-nodefaults", ...words];
}

/** What the emulator says of itself. @throws when there is none, with what to do. */
export async function emulatorVersion(): Promise<string> {
  try {
    return await must([emulator, "--version"]);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(
      `tests with ssh-guest need ${emulator}, which cannot be run here: ${why}. test/cluster/install-packages.sh installs it on Debian`,
      { cause: error },
    );
  }
}

/** A processor that is short of time fails the timer check at the boot, and finds its network card late. */
const selinuxArguments = "security=selinux selinux=1 no_timer_check systemd.default_timeout_start_sec=600";

const kernelArguments =
  "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 mitigations=off panic=5 psi=1 systemd.default_device_timeout_sec=900";

function drive(file: string): string {
  return `file=${file},if=virtio,format=qcow2,cache=unsafe,discard=unmap`;
}

/** The emulated AMD processor has no leaf by which its kernel would tell threads from cores, Intel's has. */
function processor({ threadsPerCore }: GuestSizes): string {
  return threadsPerCore === undefined ? "max,-la57" : "max,-la57,vendor=GenuineIntel";
}

function topology({ cpus, numa, threadsPerCore }: GuestSizes): string {
  if (threadsPerCore === undefined) return String(cpus);
  return `${cpus},sockets=${numa},cores=${cpus / numa / threadsPerCore},threads=${threadsPerCore}`;
}

/** CPUs and memory are split evenly over the NUMA nodes. */
function nodesOf({ cpus, memoryMiB, numa }: GuestSizes): (readonly [string, string])[] {
  return Array.from({ length: numa }, (_, node) => {
    const [first, last] = [(node * cpus) / numa, ((node + 1) * cpus) / numa - 1];
    return [
      ["object", `memory-backend-ram,id=memory${node},size=${memoryMiB / numa}M`] as const,
      ["numa", `node,nodeid=${node},cpus=${first}-${last},memdev=memory${node}`] as const,
    ];
  }).flat();
}

/** A guest's hardware address, of those that are nobody's. */
export function macOf(name: string): string {
  const digest = createHash("sha256").update(name).digest("hex");
  return `52:54:00:${digest.slice(0, 2)}:${digest.slice(2, 4)}:${digest.slice(4, 6)}`;
}

/** Has the emulator of the guest in a folder carry out a command. @returns what it answers. Throws with its words when it refuses.
 *  @see https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html */
export async function qmp(folder: string, execute: string, args: object = {}): Promise<unknown> {
  const socket = connect(join(folder, "qmp"));
  try {
    await once(socket, "connect");
    const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
    const answer = async (): Promise<unknown> => {
      for (;;) {
        const { value, done } = (await lines.next()) as { value?: string; done?: boolean };
        if (done || value === undefined) throw new Error(`the emulator hung up on ${execute}`);
        const said = JSON.parse(value) as { return?: unknown; error?: { desc: string }; event?: string };
        if (said.error) throw new Error(`the emulator refuses ${execute}: ${said.error.desc}`);
        if ("return" in said) return said.return;
      }
    };
    for (const command of [{ execute: "qmp_capabilities" }, { execute, arguments: args }])
      socket.write(`${JSON.stringify(command)}\n`);
    await answer();
    return await answer();
  } finally {
    socket.destroy();
  }
}
