import type { Clock } from "../lib/clock.ts";
import { ignoreCode, ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { targetAddresses } from "./addresses.ts";
import { cgroupVersion, exists } from "./exists.ts";
import { command } from "../seams/command.ts";

/** Facts that do not change until the target reboots. */
export interface HostFacts {
  readonly hostname: string;
  readonly machineID: string;
  readonly systemUUID: string;
  readonly bootID: string;
  readonly kernelVersion: string;
  readonly osImage: string;
  readonly operatingSystem: "linux";
  /** Architecture in Go's names: amd64, arm64, … */
  readonly architecture: string;
  readonly cpus: number;
  /** CPU numbers, such as `0,1`. */
  readonly cpuList: string;
  readonly memoryBytes: number;
  readonly swapBytes: number;
  /** Reserved huge pages in bytes by size, such as `hugepages-2Mi`. */
  readonly hugepages: Readonly<Record<string, number>>;
  /** Addresses of the default route's interface, IPv4 first; otherwise of any non-loopback interface. */
  readonly addresses: readonly string[];
  /** The kernel's maximum number of processes and threads. */
  readonly maxPid: number;
  readonly cgroupVersion: 1 | 2;
  /** True if AppArmor is enabled. */
  readonly appArmor: boolean;
}

const architectures: Readonly<Record<string, string>> = {
  x86_64: "amd64",
  aarch64: "arm64",
  armv7l: "arm",
  i686: "386",
};

/** Reads the target's facts from its files and uname. @throws CodedError unavailable if the target is unreachable. */
export async function readFacts(host: Host, signal: AbortSignal): Promise<HostFacts> {
  const read = async (path: string) => (await readText(host, path, signal)) ?? "";
  const most = async (name: string) => Number.parseInt(await read(`/proc/sys/kernel/${name}`), 10) || 32_768;
  const [cpuinfo, meminfo, appArmor, uname] = await Promise.all([
    read("/proc/cpuinfo"),
    read("/proc/meminfo"),
    hasAppArmor(host, signal),
    host.run(command("uname", ["-n", "-r", "-m"]), { signal }),
  ]);
  const [hostname = "", kernelVersion = "", machine = ""] = uname.stdout.trim().split(" ");
  const memory = parseMeminfo(meminfo);
  const cpuList = [...cpuinfo.matchAll(/^processor\s*:\s*(\d+)/gm)].map(([, number]) => number);
  const machineID = await readMachineID(host, signal);
  return {
    hostname,
    machineID,
    systemUUID: (await read("/sys/class/dmi/id/product_uuid")).trim() || machineID,
    bootID: await host.clock.bootId(signal),
    kernelVersion,
    osImage: prettyName((await read("/etc/os-release")) || (await read("/usr/lib/os-release"))),
    operatingSystem: "linux",
    architecture: architectures[machine] ?? machine,
    cpus: cpuList.length || 1,
    cpuList: cpuList.join(",") || "0",
    memoryBytes: memory["MemTotal"] ?? 0,
    swapBytes: memory["SwapTotal"] ?? 0,
    hugepages: await readHugepages(host, signal),
    addresses: await targetAddresses(host, signal),
    maxPid: Math.min(await most("pid_max"), await most("threads-max")),
    cgroupVersion: await cgroupVersion(host.fs, signal),
    appArmor,
  };
}

/** The target's machine ID; empty if it has none. @see https://man7.org/linux/man-pages/man5/machine-id.5.html */
export async function readMachineID(host: Host, signal: AbortSignal): Promise<string> {
  const read = async (path: string) => ((await readText(host, path, signal)) ?? "").trim();
  return (await read("/etc/machine-id")) || (await read("/var/lib/dbus/machine-id"));
}

/** Boot time of the target, milliseconds since the epoch by our clock; undefined if unknown. */
export async function readBootTime(
  host: Host,
  clock: Pick<Clock, "now">,
  signal: AbortSignal,
): Promise<number | undefined> {
  const uptime = await readText(host, "/proc/uptime", signal);
  return uptime === undefined ? undefined : bootTimeOf(uptime, clock.now());
}

/** Boot time, milliseconds since the epoch. @param uptime text of /proc/uptime, read at `now`. */
export function bootTimeOf(uptime: string, now: number): number {
  return now - Number.parseFloat(uptime) * 1000;
}

/** True if AppArmor is built in and enabled, and its profiles can be loaded. */
async function hasAppArmor(host: Host, signal: AbortSignal): Promise<boolean> {
  const enabled = await readText(host, "/sys/module/apparmor/parameters/enabled", signal);
  return enabled?.startsWith("Y") === true && exists(host.fs, "/sys/kernel/security/apparmor", signal);
}

/** Facts that a Node reports, except the boot ID. Swap only decides whether a node may start, and addresses other than the
 *  first come and go with pods. */
const reportedFacts = [
  "hostname",
  "machineID",
  "systemUUID",
  "kernelVersion",
  "osImage",
  "architecture",
  "cpus",
  "memoryBytes",
  "hugepages",
  "maxPid",
  "cgroupVersion",
] as const;

/** Names of the reported facts that changed. */
export function changedFacts(before: HostFacts, now: HostFacts): readonly string[] {
  const changed: string[] = reportedFacts.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(now[name]));
  return before.addresses[0] === now.addresses[0] ? changed : [...changed, "address"];
}

/** A file's text; undefined if it is missing or unreadable for this user. */
async function readText(host: Host, path: string, signal: AbortSignal): Promise<string | undefined> {
  const file = await ignoreCode(host.fs.readFile(path, { signal }), "not_found", "permission_denied");
  return file?.toString("utf8");
}

/** Fields of /proc/meminfo in bytes. */
export function parseMeminfo(text: string): Readonly<Record<string, number>> {
  return Object.fromEntries(
    [...text.matchAll(/^([\w()]+):\s+(\d+) kB$/gm)].map(([, name, kib]) => [name ?? "", Number(kib) * 1024]),
  );
}

function prettyName(osRelease: string): string {
  return /^PRETTY_NAME="?(.*?)"?$/m.exec(osRelease)?.[1] ?? "Linux";
}

async function readHugepages(host: Host, signal: AbortSignal): Promise<Readonly<Record<string, number>>> {
  const root = "/sys/kernel/mm/hugepages";
  const sizes = (await ignoreNotFound(host.fs.list(root, signal))) ?? [];
  const entries = await Promise.all(
    sizes.map(async ({ name }) => {
      const kib = Number(/^hugepages-(\d+)kB$/.exec(name)?.[1] ?? 0);
      const count = Number((await readText(host, `${root}/${name}/nr_hugepages`, signal))?.trim() ?? 0);
      const size = kib >= 1024 * 1024 ? `${kib / 1024 / 1024}Gi` : kib >= 1024 ? `${kib / 1024}Mi` : `${kib}Ki`;
      return [`hugepages-${size}`, count * kib * 1024] as const;
    }),
  );
  return Object.fromEntries(entries.filter(([, bytes]) => Number.isFinite(bytes)));
}
