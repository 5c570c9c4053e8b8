import { cpusOf } from "../../lib/cpu-set.ts";
import type { CgroupLimits } from "../cgroups.ts";

/** A unit property with its D-Bus type: `b` boolean, `t` unsigned 64-bit, `s` string, `as` strings, `ay` bytes.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/org.freedesktop.systemd1.html */
export type UnitProperty =
  | { readonly name: string; readonly type: "b"; readonly value: boolean }
  | { readonly name: string; readonly type: "t"; readonly value: bigint }
  | { readonly name: string; readonly type: "s"; readonly value: string }
  | { readonly name: string; readonly type: "as"; readonly value: readonly string[] }
  | { readonly name: string; readonly type: "ay"; readonly value: Uint8Array };

/** Operations on systemd slices, independent of the transport. */
export interface SliceUnits {
  /** systemd's version number, such as 252. */
  version(signal: AbortSignal): Promise<number>;
  /** Starts a transient slice and waits for it. @returns false for an existing slice, which is not changed. */
  start(slice: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<boolean>;
  /** Changes properties until the next boot. */
  set(slice: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<void>;
  /** Stops a slice with everything in it and waits for it; a missing slice is not an error. */
  stop(slice: string, signal: AbortSignal): Promise<void>;
}

const infinity = 2n ** 64n - 1n;
/** The first versions with CPUQuotaPeriodUSec and AllowedCPUs. */
const [periodSince, cpusSince] = [242, 244];
const defaultPeriodUs = 100_000;
/** Granularity of a quota, microseconds per second of one CPU: systemd uses whole percents. */
const quotaStepUs = 10_000;

/** Slices of a path, beginning with the topmost, each with its parent: `/a.slice/a-b.slice` has `a.slice` in `-.slice` and
 *  `a-b.slice` in `a.slice`. */
export function slicesOf(path: string): readonly { readonly slice: string; readonly parent: string }[] {
  const names = path.split("/").filter((name) => name !== "");
  return names.map((slice, depth) => ({ slice, parent: names[depth - 1] ?? "-.slice" }));
}

/** Properties of a new slice. Accounting is enabled from the start, since the kernel does not count earlier usage. Without
 *  default dependencies, systemd does not stop the slice before the runtime at shutdown. */
export function newSlice(slice: string, parent: string, version: 1 | 2): readonly UnitProperty[] {
  const flag = (name: string, value: boolean): UnitProperty => ({ name, type: "b", value });
  return [
    { name: "Description", type: "s", value: `Kubernetes pods of ${slice}` },
    { name: "Wants", type: "as", value: [parent] },
    flag("MemoryAccounting", true),
    flag("CPUAccounting", true),
    flag(version === 2 ? "IOAccounting" : "BlockIOAccounting", true),
    flag("TasksAccounting", true),
    flag("DefaultDependencies", false),
  ];
}

/** Converts limits to slice properties. Pure. Limits unknown to systemd are written to files only. @param weightOf converts v1
 *  shares to a v2 weight. */
export function limitProperties(
  limits: CgroupLimits,
  cgroupVersion: 1 | 2,
  systemdVersion: number,
  weightOf: (shares: number) => number,
): readonly UnitProperty[] {
  const number = (name: string, value: number | bigint | undefined): readonly UnitProperty[] =>
    value === undefined ? [] : [{ name, type: "t", value: typeof value === "bigint" ? value : bounded(value) }];
  const { memoryBytes, cpuShares: shares, cpus, pids } = limits;
  const kept = cgroupVersion === 2 ? limits : {};
  const weight = shares === undefined ? undefined : weightOf(shares);
  return [
    ...number(cgroupVersion === 2 ? "MemoryMax" : "MemoryLimit", memoryBytes === 0 ? undefined : memoryBytes),
    ...number("MemoryMin", kept.memoryMinBytes),
    ...number("MemoryLow", kept.memoryLowBytes),
    ...number("MemorySwapMax", kept.swapBytes),
    ...(cgroupVersion === 2 ? number("CPUWeight", weight) : number("CPUShares", shares)),
    ...number("CPUQuotaPeriodUSec", systemdVersion >= periodSince ? limits.cpuPeriodUs : undefined),
    ...number("CPUQuotaPerSecUSec", quotaPerSecond(limits)),
    // systemd rejects a limit of 0 tasks.
    ...number("TasksMax", pids === 0 ? 1 : pids),
    ...(cpus === undefined || cpus === "" || systemdVersion < cpusSince
      ? []
      : [{ name: "AllowedCPUs", type: "ay" as const, value: cpuBits(cpus) }]),
  ];
}

/** Rounds the quota as systemd does, so that files and systemd agree. */
export function roundedLimits(limits: CgroupLimits): CgroupLimits {
  const perSecond = quotaPerSecond(limits);
  const { cpuQuotaUs, cpuPeriodUs = defaultPeriodUs } = limits;
  if (cpuQuotaUs === undefined || cpuQuotaUs <= 0 || perSecond === undefined) return limits;
  if (exactPerSecond(cpuQuotaUs, cpuPeriodUs) % quotaStepUs === 0) return limits;
  return { ...limits, cpuQuotaUs: Number((perSecond * BigInt(cpuPeriodUs)) / 1_000_000n) };
}

/** Microseconds of CPU time per second, rounded up to whole percents of a CPU. */
function quotaPerSecond({ cpuQuotaUs = 0, cpuPeriodUs = 0 }: CgroupLimits): bigint | undefined {
  if (cpuQuotaUs === 0 && cpuPeriodUs === 0) return undefined;
  if (cpuQuotaUs <= 0) return infinity;
  const exact = exactPerSecond(cpuQuotaUs, cpuPeriodUs || defaultPeriodUs);
  return BigInt(Math.ceil(exact / quotaStepUs) * quotaStepUs);
}

function exactPerSecond(quotaUs: number, periodUs: number): number {
  return Number((BigInt(quotaUs) * 1_000_000n) / BigInt(periodUs));
}

function bounded(value: number): bigint {
  return value < 0 ? infinity : BigInt(value);
}

/** Converts a CPU list such as `0-3,8` to systemd's bit mask, lowest byte first. */
export function cpuBits(list: string): Uint8Array {
  const cpus = [...cpusOf(list)];
  const bits = new Uint8Array(Math.floor(Math.max(...cpus) / 8) + 1);
  for (const cpu of cpus) bits[cpu >> 3] = (bits[cpu >> 3] ?? 0) | (1 << (cpu & 7));
  return bits;
}
