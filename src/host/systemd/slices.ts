import { cpusOf } from "../../lib/cpu-set.ts";
import type { CgroupLimits } from "../cgroups.ts";

/** A property of a unit, with its type in D-Bus's words: `b` boolean, `t` unsigned of 64 bits, `s` text, `as` texts, `ay` bytes.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/org.freedesktop.systemd1.html */
export type UnitProperty =
  | { readonly name: string; readonly type: "b"; readonly value: boolean }
  | { readonly name: string; readonly type: "t"; readonly value: bigint }
  | { readonly name: string; readonly type: "s"; readonly value: string }
  | { readonly name: string; readonly type: "as"; readonly value: readonly string[] }
  | { readonly name: string; readonly type: "ay"; readonly value: Uint8Array };

/** Slices as graftlet needs them of systemd; one interface whatever the way to it. */
export interface SliceUnits {
  /** Number of systemd's version, such as 252. */
  version(signal: AbortSignal): Promise<number>;
  /** Starts a transient slice, and waits until it has. @returns false for one that was there: nothing of it is changed then. */
  start(slice: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<boolean>;
  /** Changes properties until the next boot. */
  set(slice: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<void>;
  /** Stops a slice with all in it, and waits until it has; a missing one is success. */
  stop(slice: string, signal: AbortSignal): Promise<void>;
}

const infinity = 2n ** 64n - 1n;
/** The first versions that know CPUQuotaPeriodUSec, and AllowedCPUs. */
const [periodSince, cpusSince] = [242, 244];
const defaultPeriodUs = 100_000;
/** The step of a quota in microseconds per second of one CPU: systemd counts whole percents. */
const quotaStepUs = 10_000;

/** Slices of a path from the top, each with its parent: `/a.slice/a-b.slice` has `a.slice` in `-.slice`, `a-b.slice` in `a.slice`. */
export function slicesOf(path: string): readonly { readonly slice: string; readonly parent: string }[] {
  const names = path.split("/").filter((name) => name !== "");
  return names.map((slice, depth) => ({ slice, parent: names[depth - 1] ?? "-.slice" }));
}

/** Properties of a new slice. Accounting is on from the start: the kernel does not count what ran before. Without default
 *  dependencies, systemd does not stop it before the runtime at a shutdown. */
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

/** Limits as properties of a slice. Pure. Limits that systemd does not know are files' only.
 *  @param weightOf shares of version 1 as a weight of version 2. */
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
    // A slice of no tasks at all is none for systemd.
    ...number("TasksMax", pids === 0 ? 1 : pids),
    ...(cpus === undefined || cpus === "" || systemdVersion < cpusSince
      ? []
      : [{ name: "AllowedCPUs", type: "ay" as const, value: cpuBits(cpus) }]),
  ];
}

/** The same limits with the quota that systemd makes of it: files and systemd then agree. */
export function roundedLimits(limits: CgroupLimits): CgroupLimits {
  const perSecond = quotaPerSecond(limits);
  const { cpuQuotaUs, cpuPeriodUs = defaultPeriodUs } = limits;
  if (cpuQuotaUs === undefined || cpuQuotaUs <= 0 || perSecond === undefined) return limits;
  if (exactPerSecond(cpuQuotaUs, cpuPeriodUs) % quotaStepUs === 0) return limits;
  return { ...limits, cpuQuotaUs: Number((perSecond * BigInt(cpuPeriodUs)) / 1_000_000n) };
}

/** Microseconds of CPU time a second, rounded up to whole percents of a CPU. */
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

/** A list of CPUs such as `0-3,8` as systemd takes it: a bit for each, the lowest byte first. */
export function cpuBits(list: string): Uint8Array {
  const cpus = [...cpusOf(list)];
  const bits = new Uint8Array(Math.floor(Math.max(...cpus) / 8) + 1);
  for (const cpu of cpus) bits[cpu >> 3] = (bits[cpu >> 3] ?? 0) | (1 << (cpu & 7));
  return bits;
}
