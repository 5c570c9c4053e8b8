import { cgroupVersion, exists, hasSelinux, swapFileV2 } from "../host/exists.ts";
import { parseMeminfo } from "../host/facts.ts";
import { CodedError, ignoreCode } from "../lib/errors.ts";
import { type TargetResources, pageSizeName } from "../pod/resources.ts";
import type { Host } from "../seams/host.ts";

/** Facts about the target that container configurations depend on, beyond its resources. */
export interface TargetFacts extends TargetResources {
  /** Paths that reveal other workloads' activity through CPU temperatures, one per CPU. */
  readonly thermalPaths: readonly string[];
  /** SELinux is enforced: mounts need relabelling. */
  readonly selinux: boolean;
}

const cgroupRoot = "/sys/fs/cgroup";
const cpuRoot = "/sys/devices/system/cpu";
const hugePageRoot = "/sys/kernel/mm/hugepages";

/** Reads the target's facts once; a failed read is retried by the next caller. */
export function createTargetFacts(fs: Host["fs"]): (signal: AbortSignal) => Promise<TargetFacts> {
  let known: TargetFacts | undefined;
  return async (signal) => (known ??= await readTargetFacts(fs, signal));
}

/** @throws CodedError, such as unavailable, if the target cannot be read. */
async function readTargetFacts(fs: Host["fs"], signal: AbortSignal): Promise<TargetFacts> {
  const cgroupV2 = (await cgroupVersion(fs, signal)) === 2;
  const [{ memoryBytes, swapBytes }, hugePageSizes, swapController, thermalPaths, selinux] = await Promise.all([
    memoryOf(fs, signal),
    hugePageSizesOf(fs, signal),
    exists(fs, cgroupV2 ? await swapFileV2(fs, signal) : `${cgroupRoot}/memory/memory.memsw.limit_in_bytes`, signal),
    thermalPathsOf(fs, signal),
    hasSelinux(fs, signal),
  ]);
  return { memoryBytes, swapBytes, hugePageSizes, cgroupV2, swapController, thermalPaths, selinux };
}

async function memoryOf(fs: Host["fs"], signal: AbortSignal): Promise<Pick<TargetFacts, "memoryBytes" | "swapBytes">> {
  const { MemTotal: memoryBytes, SwapTotal: swapBytes = 0 } = parseMeminfo(
    (await fs.readFile("/proc/meminfo", { signal })).toString(),
  );
  if (memoryBytes === undefined) throw new CodedError("unknown", "/proc/meminfo of the target has no MemTotal");
  return { memoryBytes, swapBytes };
}

async function hugePageSizesOf(fs: Host["fs"], signal: AbortSignal): Promise<string[]> {
  const sizes = (await namesIn(fs, hugePageRoot, signal)).map((name) => /^hugepages-(\d+)kB$/.exec(name)?.[1]);
  return sizes.filter((size) => size !== undefined).map((size) => pageSizeName(Number(size) * 1024));
}

async function thermalPathsOf(fs: Host["fs"], signal: AbortSignal): Promise<string[]> {
  const cpus = (await namesIn(fs, cpuRoot, signal)).filter((name) => /^cpu\d+$/.test(name));
  const paths = cpus.map((cpu) => `${cpuRoot}/${cpu}/thermal_throttle`);
  const there = await Promise.all(paths.map((path) => exists(fs, path, signal)));
  return paths.filter((_, index) => there[index]);
}

async function namesIn(fs: Host["fs"], path: string, signal: AbortSignal): Promise<string[]> {
  const entries = (await ignoreCode(fs.list(path, signal), "not_found", "permission_denied")) ?? [];
  return entries.map(({ name }) => name).sort();
}

/** True if containers use the target's swap: only with cgroup v2 and its swap controller. @param limitedSwap the node's setting. */
export async function usesSwap(
  limitedSwap: boolean,
  facts: (signal: AbortSignal) => Promise<TargetFacts>,
  signal: AbortSignal,
): Promise<boolean> {
  if (!limitedSwap) return false;
  const { cgroupV2, swapController } = await facts(signal);
  return cgroupV2 && swapController;
}
