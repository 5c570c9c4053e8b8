import type { FileTexts } from "./cgroup-readings.ts";

/** Resource usage of a cgroup and its descendants. Values that the kernel does not report are missing. */
export interface GroupUsage {
  readonly cpu?: CpuUsage;
  readonly memory?: MemoryUsage;
  readonly io?: IoUsage;
  /** Only for the cgroup itself, and only on request. */
  readonly processes?: number;
  readonly threads?: number;
  readonly maxThreads?: number;
}

export interface CpuUsage {
  readonly usageNs: number;
  readonly userNs?: number;
  readonly systemNs?: number;
  readonly shares?: number;
  readonly periodUs?: number;
  /** Undefined without a limit. */
  readonly quotaUs?: number;
  readonly periods?: number;
  readonly throttledPeriods?: number;
  readonly throttledNs?: number;
  /** Bursts over the quota; v2 only. */
  readonly bursts?: number;
  readonly burstNs?: number;
  readonly pressure?: PressureStall;
}

/** Bytes, except for counts. */
export interface MemoryUsage {
  readonly usage: number;
  /** Usage minus inactive file pages (the working set). */
  readonly workingSet: number;
  readonly rss?: number;
  readonly cache?: number;
  readonly mappedFile?: number;
  readonly kernel?: number;
  readonly activeFile?: number;
  readonly inactiveFile?: number;
  readonly maxUsage?: number;
  /** Undefined without a limit. */
  readonly limit?: number;
  readonly reservation?: number;
  /** Limit of swap alone; undefined without a limit. */
  readonly swapLimit?: number;
  /** Swap usage as in stats. */
  readonly swap?: SwapUsage;
  readonly failures?: number;
  /** Includes descendants with v2 only. (cAdvisor) */
  readonly pageFaults?: number;
  readonly majorPageFaults?: number;
  readonly oomKills?: number;
  readonly pressure?: PressureStall;
}

/** All 0 without swap accounting; v1 limits memory and swap together. (cAdvisor) */
export interface SwapUsage {
  readonly usage: number;
  /** Undefined without a limit. */
  readonly limit?: number;
}

export interface IoUsage {
  readonly devices: readonly DeviceIo[];
  readonly pressure?: PressureStall;
}

export interface DeviceIo {
  /** `major:minor`. */
  readonly device: string;
  /** Bytes and requests by operation: Read, Write and, with v1, Sync, Async, Discard and Total. */
  readonly bytes: Operations;
  readonly requests: Operations;
}

type Operations = Readonly<Record<string, number>>;

/** @see https://docs.kernel.org/accounting/psi.html */
export interface PressureStall {
  readonly full: PressureData;
  readonly some: PressureData;
}

export interface PressureData {
  /** Microseconds. */
  readonly total: number;
  /** Percent, averaged over 10 seconds; the others over 60 and 300. */
  readonly avg10: number;
  readonly avg60: number;
  readonly avg300: number;
}

/** The kernel's USER_HZ, in which cpuacct.stat counts. */
const tickNs = 10_000_000;
/** Limits from this value mean unlimited: the kernel rounds its maximum to whole pages. (cAdvisor) */
const unlimited = 2 ** 62;

type Defined<T> = { [K in keyof T]?: T[K] | undefined };

/** Drops undefined fields. */
function known<T>(given: Defined<T>): Partial<T> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** Parses the files of a cgroup. Pure. @see https://docs.kernel.org/admin-guide/cgroup-v1/memory.html */
export function groupUsage(files: FileTexts, version: 1 | 2): GroupUsage {
  const processes = files.get("cgroup.procs");
  const parts = version === 2 ? usageV2(files) : usageV1(files);
  return known<GroupUsage>({
    ...parts,
    processes: processes === undefined ? undefined : processes.split("\n").filter((line) => line !== "").length,
    threads: numberIn(files, "pids.current"),
    maxThreads: numberIn(files, "pids.max"),
  });
}

type UsageFields = Defined<Pick<GroupUsage, "cpu" | "memory" | "io">>;

function usageV1(files: FileTexts): UsageFields {
  const usageNs = numberIn(files, "cpuacct.usage");
  return { cpu: usageNs === undefined ? undefined : cpuV1(files, usageNs), memory: memoryV1(files), io: ioV1(files) };
}

function cpuV1(files: FileTexts, usageNs: number): CpuUsage {
  const ticks = table(files.get("cpuacct.stat"));
  const stat = table(files.get("cpu.stat"));
  const quotaUs = numberIn(files, "cpu.cfs_quota_us");
  const ns = (name: string) => (ticks[name] === undefined ? undefined : ticks[name] * tickNs);
  return {
    usageNs,
    ...known<CpuUsage>({
      userNs: ns("user"),
      systemNs: ns("system"),
      shares: numberIn(files, "cpu.shares"),
      periodUs: numberIn(files, "cpu.cfs_period_us"),
      quotaUs: quotaUs !== undefined && quotaUs > 0 ? quotaUs : undefined,
      periods: stat["nr_periods"],
      throttledPeriods: stat["nr_throttled"],
      throttledNs: stat["throttled_time"],
    }),
  };
}

function memoryV1(files: FileTexts): MemoryUsage | undefined {
  const usage = numberIn(files, "memory.usage_in_bytes");
  if (usage === undefined) return undefined;
  const stat = table(files.get("memory.stat"));
  const limit = limitIn(files, "memory.limit_in_bytes");
  const both = limitIn(files, "memory.memsw.limit_in_bytes");
  return {
    usage,
    workingSet: Math.max(0, usage - (stat["total_inactive_file"] ?? 0)),
    ...known<MemoryUsage>({
      rss: stat["total_rss"],
      cache: stat["total_cache"],
      mappedFile: stat["total_mapped_file"],
      kernel: numberIn(files, "memory.kmem.usage_in_bytes"),
      activeFile: stat["total_active_file"],
      inactiveFile: stat["total_inactive_file"],
      maxUsage: numberIn(files, "memory.max_usage_in_bytes"),
      swap: swapOf(files, "memory.memsw.limit_in_bytes", stat["total_swap"]),
      limit,
      reservation: limitIn(files, "memory.soft_limit_in_bytes"),
      swapLimit: both === undefined || limit === undefined ? undefined : Math.max(0, both - limit),
      failures: numberIn(files, "memory.failcnt"),
      pageFaults: stat["pgfault"],
      majorPageFaults: stat["pgmajfault"],
      oomKills: table(files.get("memory.oom_control"))["oom_kill"],
    }),
  };
}

function ioV1(files: FileTexts): IoUsage | undefined {
  const bytes = files.get("blkio.throttle.io_service_bytes_recursive");
  if (bytes === undefined) return undefined;
  const counts = deviceTable(files.get("blkio.throttle.io_serviced_recursive") ?? "");
  const devices = [...deviceTable(bytes)].map(([device, of]) => ({
    device,
    bytes: of,
    requests: counts.get(device) ?? {},
  }));
  return { devices };
}

/** Parses lines such as `8:0 Read 4096`, by device; sums over all devices are omitted. */
function deviceTable(text: string): ReadonlyMap<string, Operations> {
  const devices = new Map<string, Operations>();
  for (const [, device = "", operation = "", value] of text.matchAll(/^(\d+:\d+) (\w+) (\d+)$/gm))
    devices.set(device, { ...devices.get(device), [operation]: Number(value) });
  return devices;
}

function usageV2(files: FileTexts): UsageFields {
  const stat = table(files.get("cpu.stat"));
  const usageUs = stat["usage_usec"];
  return {
    cpu: usageUs === undefined ? undefined : cpuV2(files, stat, usageUs),
    memory: memoryV2(files),
    io: ioV2(files),
  };
}

function cpuV2(files: FileTexts, stat: Readonly<Record<string, number>>, usageUs: number): CpuUsage {
  const [quota, period] = files.get("cpu.max")?.split(" ") ?? [];
  const weight = numberIn(files, "cpu.weight");
  const ns = (name: string) => (stat[name] === undefined ? undefined : stat[name] * 1000);
  return {
    usageNs: usageUs * 1000,
    ...known<CpuUsage>({
      userNs: ns("user_usec"),
      systemNs: ns("system_usec"),
      shares: weight === undefined ? undefined : sharesOf(weight),
      periodUs: count(period),
      quotaUs: count(quota),
      periods: stat["nr_periods"],
      throttledPeriods: stat["nr_throttled"],
      throttledNs: ns("throttled_usec"),
      bursts: stat["nr_bursts"],
      burstNs: ns("burst_usec"),
      pressure: pressureOf(files.get("cpu.pressure")),
    }),
  };
}

/** Converts a v2 weight (1 to 10000) to v1 shares (2 to 262144). */
function sharesOf(weight: number): number {
  return Math.trunc(2 + ((weight - 1) * 262142) / 9999);
}

function memoryV2(files: FileTexts): MemoryUsage | undefined {
  const stat = table(files.get("memory.stat"));
  const usage = numberIn(files, "memory.current") ?? rootUsage(stat);
  if (usage === undefined) return undefined;
  // OOM kills in descendants are not included: cAdvisor counts them where the process was. Before Linux 5.2 only the sum exists.
  const events = table(files.get("memory.events.local") ?? files.get("memory.events"));
  return {
    usage,
    workingSet: Math.max(0, usage - (stat["inactive_file"] ?? 0)),
    ...known<MemoryUsage>({
      rss: stat["anon"],
      cache: stat["file"],
      mappedFile: stat["file_mapped"],
      // Only v1 has counters for these two. (cAdvisor)
      kernel: 0,
      failures: 0,
      activeFile: stat["active_file"],
      inactiveFile: stat["inactive_file"],
      maxUsage: numberIn(files, "memory.peak"),
      swap: swapOf(files, "memory.swap.max", numberIn(files, "memory.swap.current")),
      limit: limitIn(files, "memory.max"),
      reservation: limitIn(files, "memory.min"),
      swapLimit: limitIn(files, "memory.swap.max"),
      pageFaults: stat["pgfault"],
      majorPageFaults: stat["pgmajfault"],
      oomKills: events["oom_kill"],
      pressure: pressureOf(files.get("memory.pressure")),
    }),
  };
}

/** Memory used by the whole machine: the root cgroup has only memory.stat. Kernel memory is not counted, as with v1. (runc) */
function rootUsage({ anon, file }: Readonly<Record<string, number>>): number | undefined {
  return anon === undefined || file === undefined ? undefined : anon + file;
}

function ioV2(files: FileTexts): IoUsage | undefined {
  const text = files.get("io.stat");
  const pressure = pressureOf(files.get("io.pressure"));
  if (text === undefined && !pressure) return undefined;
  const devices = [...(text ?? "").matchAll(/^(\d+:\d+) (.*)$/gm)].map(([, device = "", fields = ""]) => {
    const value = (name: string) => Number(new RegExp(`\\b${name}=(\\d+)`).exec(fields)?.[1] ?? 0);
    return {
      device,
      bytes: { Read: value("rbytes"), Write: value("wbytes") },
      requests: { Read: value("rios"), Write: value("wios") },
    };
  });
  return { devices, ...(pressure && { pressure }) };
}

/** Parses pressure files such as `cpu.pressure` or /proc/pressure/cpu; `full` is 0 on kernels without it. */
export function pressureOf(text: string | undefined): PressureStall | undefined {
  const line = (kind: string): PressureData | undefined => {
    const fields = new RegExp(`^${kind} (.*)$`, "m").exec(text ?? "")?.[1];
    if (fields === undefined) return undefined;
    const value = (name: string) => Number(new RegExp(`${name}=([\\d.]+)`).exec(fields)?.[1] ?? 0);
    return { total: value("total"), avg10: value("avg10"), avg60: value("avg60"), avg300: value("avg300") };
  };
  const some = line("some");
  return some && { some, full: line("full") ?? { total: 0, avg10: 0, avg60: 0, avg300: 0 } };
}

/** Parses lines of a name and a number. */
function table(text: string | undefined): Readonly<Record<string, number>> {
  return Object.fromEntries(
    [...(text ?? "").matchAll(/^(\S+) (\d+)$/gm)].map(([, name, value]) => [name ?? "", Number(value)]),
  );
}

/** Number in a file; undefined if the file is missing or contains a word such as `max`. */
function numberIn(files: FileTexts, name: string): number | undefined {
  return count(files.get(name));
}

function swapOf(files: FileTexts, limitFile: string, usage = 0): SwapUsage {
  const limit = files.has(limitFile) ? limitIn(files, limitFile) : 0;
  return { usage, ...(limit !== undefined && { limit }) };
}

function limitIn(files: FileTexts, name: string): number | undefined {
  const limit = numberIn(files, name);
  return limit === undefined || limit > unlimited ? undefined : limit;
}

function count(text: string | undefined): number | undefined {
  return text !== undefined && /^-?\d+$/.test(text) ? Number(text) : undefined;
}
