import type { CpuUsage, DeviceIo, IoUsage, MemoryUsage, PressureStall } from "../host/cgroup-usage.ts";
import type { InterfaceTraffic, Traffic } from "../host/net-dev.ts";
import type { MetricRow } from "./cadvisor-rows.ts";
import type { DiskUse } from "./disk-stats.ts";
import type { Sample } from "./sample.ts";

/** Derives a metric from the measurements. */
export interface Series {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  /** True for settings, which have no timestamp. */
  readonly timeless?: true;
  /** The values, each with its labels in addition to the row's; undefined values are omitted. */
  readonly values: (row: MetricRow, sample: Sample) => readonly Value[];
}

type Value = readonly [labels: Readonly<Record<string, string>>, value: number | undefined];

type Shape = Pick<Series, "type" | "timeless">;
const counter: Shape = { type: "counter" };
const gauge: Shape = { type: "gauge" };
const setting: Shape = { type: "gauge", timeless: true };

const one = (
  name: string,
  help: string,
  shape: Shape,
  value: (row: MetricRow, sample: Sample) => number | undefined,
): Series => ({
  name: `container_${name}`,
  help,
  ...shape,
  values: (row, sample) => [[{}, value(row, sample)]],
});

const seconds = (nanoseconds: number | undefined): number | undefined =>
  nanoseconds === undefined ? undefined : nanoseconds / 1e9;

export const otherSeries: readonly Series[] = [
  one("last_seen", "Time of the last measurement, in seconds since the Unix epoch.", gauge, (_row, { at }) =>
    Math.trunc(at / 1000),
  ),
  one(
    "health_state",
    "Result of the runtime's health check of the container; -1 without a health check.",
    gauge,
    () => -1,
  ),
  one("start_time_seconds", "Start time, in seconds since the Unix epoch.", setting, ({ startedAt }) =>
    startedAt === undefined ? undefined : Math.trunc(startedAt / 1000),
  ),
  one(
    "processes",
    "Number of processes in the cgroup itself, excluding its children.",
    gauge,
    ({ measured, labels, isContainer }) => measured.processes ?? (isContainer || labels.id === "" ? undefined : 0),
  ),
  one("threads", "Number of threads in the cgroup and its children.", gauge, ({ measured }) => measured.threads),
  one("threads_max", "Maximum number of threads; 0 without a limit.", gauge, ({ measured }) =>
    measured.threads === undefined ? undefined : (measured.maxThreads ?? 0),
  ),
  one(
    "oom_events_total",
    "Processes killed by the out-of-memory killer.",
    counter,
    ({ measured }) => measured.memory?.oomKills,
  ),
  ...pressureSeries("cpu", ({ measured }) => measured.cpu?.pressure),
  ...pressureSeries("memory", ({ measured }) => measured.memory?.pressure),
  ...pressureSeries("io", ({ measured }) => measured.io?.pressure),
  ...trafficSeries("receive", ["received", "receiving"], ({ rx }) => rx),
  ...trafficSeries("transmit", ["sent", "sending"], ({ tx }) => tx),
];

function pressureSeries(of: string, read: (row: MetricRow) => PressureStall | undefined): readonly Series[] {
  const total = (kind: keyof PressureStall) => (row: MetricRow) => {
    const microseconds = read(row)?.[kind].total;
    return microseconds === undefined ? undefined : microseconds / 1e6;
  };
  const name = (what: string) => `pressure_${of}_${what}_seconds_total`;
  return [
    one(name("stalled"), `Time during which all tasks waited for ${of} at once, in seconds.`, counter, total("full")),
    one(name("waiting"), `Time during which at least one task waited for ${of}, in seconds.`, counter, total("some")),
  ];
}

function trafficSeries(
  direction: string,
  [done, doing]: readonly [string, string],
  read: (one: InterfaceTraffic) => Traffic,
): readonly Series[] {
  const series = (what: string, help: string, value: (traffic: Traffic) => number): Series => ({
    name: `container_network_${direction}_${what}_total`,
    help,
    ...counter,
    values: ({ network = [] }) => network.map((each) => [{ interface: each.name }, value(read(each))]),
  });
  return [
    series("bytes", `Bytes ${done}.`, ({ bytes }) => bytes),
    series("packets", `Packets ${done}.`, ({ packets }) => packets),
    series("packets_dropped", `Packets dropped when ${doing}.`, ({ dropped }) => dropped),
    series("errors", `Errors when ${doing} packets.`, ({ errors }) => errors),
  ];
}

const ofCpu = (name: string, help: string, shape: Shape, value: (cpu: CpuUsage) => number | undefined): Series =>
  one(name, help, shape, ({ measured: { cpu } }) => cpu && value(cpu));

/** Series about throttling: only subjects with a CPU limit can be throttled. */
const throttled = (name: string, help: string, value: (cpu: CpuUsage) => number | undefined): Series =>
  ofCpu(`cpu_cfs_${name}`, help, counter, (cpu) => (cpu.quotaUs === undefined ? undefined : value(cpu)));

export const cpuSeries: readonly Series[] = [
  {
    name: "container_cpu_usage_seconds_total",
    help: "CPU time used, in core-seconds.",
    ...counter,
    values: ({ measured: { cpu } }) => [[{ cpu: "total" }, seconds(cpu?.usageNs || undefined)]],
  },
  ofCpu("cpu_user_seconds_total", "User CPU time used, in core-seconds.", counter, ({ userNs }) => seconds(userNs)),
  ofCpu("cpu_system_seconds_total", "System CPU time used, in core-seconds.", counter, ({ systemNs }) =>
    seconds(systemNs),
  ),
  throttled("periods_total", "Enforcement periods of the CPU limit.", ({ periods }) => periods),
  throttled(
    "throttled_periods_total",
    "Enforcement periods in which processes were throttled.",
    (cpu) => cpu.throttledPeriods,
  ),
  throttled("throttled_seconds_total", "Throttled time, in seconds.", (cpu) => seconds(cpu.throttledNs)),
  throttled(
    "burst_periods_total",
    "Enforcement periods in which the CPU quota was exceeded.",
    ({ bursts }) => bursts ?? 0,
  ),
  throttled("burst_seconds_total", "CPU time used beyond the quota, in seconds.", ({ burstNs }) =>
    seconds(burstNs ?? 0),
  ),
  ofCpu(
    "spec_cpu_period",
    "Enforcement period of the CPU limit, in microseconds.",
    setting,
    ({ periodUs }) => periodUs,
  ),
  ofCpu("spec_cpu_quota", "CPU quota per period, in microseconds.", setting, ({ quotaUs }) => quotaUs),
  ofCpu("spec_cpu_shares", "CPU shares.", setting, ({ shares }) => shares),
];

const ofMemory = (
  name: string,
  help: string,
  shape: Shape,
  value: (memory: MemoryUsage) => number | undefined,
): Series => one(name, help, shape, ({ measured: { memory } }) => memory && value(memory));
const bytes = (name: string, help: string, value: (memory: MemoryUsage) => number | undefined): Series =>
  ofMemory(`memory_${name}`, help, gauge, value);
/** Series of a memory limit; 0 without a limit. */
const limit = (name: string, help: string, value: (memory: MemoryUsage) => number | undefined): Series =>
  ofMemory(`spec_memory_${name}`, help, setting, (memory) => value(memory) ?? 0);

export const memorySeries: readonly Series[] = [
  bytes("usage_bytes", "Memory used, in bytes.", ({ usage }) => usage),
  bytes("working_set_bytes", "Memory used, excluding inactive file pages, in bytes.", (m) => m.workingSet),
  bytes("rss", "Anonymous memory, in bytes.", ({ rss }) => rss),
  bytes("cache", "Page cache, in bytes.", ({ cache }) => cache),
  bytes("mapped_file", "Files mapped into memory, in bytes.", ({ mappedFile }) => mappedFile),
  bytes("kernel_usage", "Kernel memory, in bytes.", ({ kernel }) => kernel),
  bytes("swap", "Swap used, in bytes.", ({ swap }) => swap?.usage),
  bytes("max_usage_bytes", "Maximum memory used so far, in bytes.", ({ maxUsage }) => maxUsage),
  bytes("total_active_file_bytes", "Active file pages, in bytes.", ({ activeFile }) => activeFile),
  bytes("total_inactive_file_bytes", "Inactive file pages, in bytes.", ({ inactiveFile }) => inactiveFile),
  ofMemory("memory_failcnt", "Number of times the memory limit was hit.", counter, ({ failures }) => failures),
  {
    name: "container_memory_failures_total",
    help: "Page faults; the value is the same for both scopes.",
    ...counter,
    values: ({ measured: { memory } }) => [
      [{ failure_type: "pgfault", scope: "container" }, memory?.pageFaults],
      [{ failure_type: "pgmajfault", scope: "container" }, memory?.majorPageFaults],
      [{ failure_type: "pgfault", scope: "hierarchy" }, memory?.pageFaults],
      [{ failure_type: "pgmajfault", scope: "hierarchy" }, memory?.majorPageFaults],
    ],
  },
  limit("limit_bytes", "Memory limit, in bytes; 0 without a limit.", (memory) => memory.limit),
  limit("swap_limit_bytes", "Swap limit, in bytes; 0 without a limit.", (memory) => memory.swap?.limit),
  limit("reservation_limit_bytes", "Memory reservation, in bytes; 0 for none.", (memory) => memory.reservation),
];

const onDevice = (name: string, help: string, value: (device: DeviceIo) => number): Series => ({
  name: `container_fs_${name}`,
  help,
  ...counter,
  values: ({ measured: { io } }, { devices }) =>
    devicesOf(io).map((each) => [{ device: devices.get(each.device) ?? each.device }, value(each)]),
});

const devicesOf = (io: IoUsage | undefined): readonly DeviceIo[] => io?.devices ?? [];

const onFileSystem = (name: string, help: string, value: (use: DiskUse) => number | undefined): Series => ({
  name: `container_fs_${name}`,
  help,
  ...gauge,
  values: ({ fileSystems }) => fileSystems.map((use) => [{ device: use.device }, value(use)]),
});

export const ioSeries: readonly Series[] = [
  onDevice("reads_bytes_total", "Bytes read from devices.", ({ bytes: of }) => of["Read"] ?? 0),
  onDevice("writes_bytes_total", "Bytes written to devices.", ({ bytes: of }) => of["Write"] ?? 0),
  onDevice("reads_total", "Reads from devices.", ({ requests }) => requests["Read"] ?? 0),
  onDevice("writes_total", "Writes to devices.", ({ requests }) => requests["Write"] ?? 0),
  {
    name: "container_blkio_device_usage_total",
    help: "Bytes read from and written to devices, by operation.",
    ...counter,
    values: ({ measured: { io } }, { devices }) =>
      devicesOf(io).flatMap(({ device, bytes: of }) => {
        const [major = "", minor = ""] = device.split(":");
        const labels = { device: devices.get(device) ?? "", major, minor };
        return Object.entries(of).map(([operation, count]): Value => [{ ...labels, operation }, count]);
      }),
  },
  onFileSystem("usage_bytes", "Usage of a file system, in bytes.", ({ usedBytes }) => usedBytes),
  onFileSystem("limit_bytes", "Size of a file system, in bytes.", ({ capacityBytes }) => capacityBytes),
  onFileSystem("inodes_free", "Free inodes of a file system.", ({ inodesFree }) => inodesFree),
  onFileSystem("inodes_total", "Inodes of a file system.", ({ inodes }) => inodes),
];
