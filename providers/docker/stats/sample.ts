import { CpuUsage, MemoryUsage, NetworkUsage } from "../../../src/gen/cri.ts";
import { nanoseconds } from "../client/times.ts";

/** The part of the daemon's response for which CRI has fields.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerStats */
export interface StatsSample {
  /** Sample time, RFC 3339 with nanoseconds; Go's zero time for a container that is not running. */
  readonly read: string;
  readonly cpu_stats?: { readonly cpu_usage?: { readonly total_usage?: number } };
  readonly memory_stats?: {
    readonly usage?: number;
    /** Memory limit, bytes; the machine's memory for a container without a limit. */
    readonly limit?: number;
    /** Memory cgroup statistics, with the names of its version. */
    readonly stats?: Readonly<Record<string, number>>;
  };
  readonly pids_stats?: { readonly current?: number };
  readonly networks?: Readonly<Record<string, InterfaceSample>>;
}

interface InterfaceSample {
  readonly rx_bytes: number;
  readonly rx_errors: number;
  readonly tx_bytes: number;
  readonly tx_errors: number;
}

export interface Usage {
  readonly cpu: CpuUsage;
  readonly memory: MemoryUsage;
  readonly network: NetworkUsage | undefined;
  readonly processes: bigint;
}

/** Converts a sample to CRI usage; undefined for a container that was not running. @param machineBytes the machine's memory. */
export function parseUsage(sample: StatsSample, machineBytes: number): Usage | undefined {
  const timestamp = nanoseconds(sample.read);
  const total = sample.cpu_stats?.cpu_usage?.total_usage;
  if (timestamp === 0n || total === undefined || sample.memory_stats?.usage === undefined) return undefined;
  return {
    cpu: CpuUsage.fromPartial({ timestamp, usageCoreNanoSeconds: count(total) }),
    memory: memoryOf(sample.memory_stats, timestamp, machineBytes),
    network: networkOf(sample.networks, timestamp),
    processes: BigInt(sample.pids_stats?.current ?? 0),
  };
}

/** Returns memory usage. The working set excludes file pages that the kernel would drop first. Hierarchical values have names
 *  with `total_` in cgroup v1; in v2 all values are hierarchical. */
function memoryOf(
  { usage = 0, limit, stats = {} }: NonNullable<StatsSample["memory_stats"]>,
  timestamp: bigint,
  machineBytes: number,
): MemoryUsage {
  const workingSet = Math.max(0, usage - (stats.total_inactive_file ?? stats.inactive_file ?? 0));
  const limited = limit !== undefined && limit < machineBytes;
  const faults = stats.total_pgfault ?? stats.pgfault;
  const majorFaults = stats.total_pgmajfault ?? stats.pgmajfault;
  const rss = stats.total_rss ?? stats.anon;
  return MemoryUsage.fromPartial({
    timestamp,
    usageBytes: count(usage),
    workingSetBytes: count(workingSet),
    ...(limited && { availableBytes: count(Math.max(0, limit - workingSet)) }),
    ...(rss !== undefined && { rssBytes: count(rss) }),
    ...(faults !== undefined && { pageFaults: count(faults) }),
    ...(majorFaults !== undefined && { majorPageFaults: count(majorFaults) }),
  });
}

/** A pod has one interface; the first of several counts as the default. */
function networkOf(networks: StatsSample["networks"], timestamp: bigint): NetworkUsage | undefined {
  const interfaces = Object.entries(networks ?? {})
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, { rx_bytes, rx_errors, tx_bytes, tx_errors }]) => ({
      name,
      rxBytes: count(rx_bytes),
      rxErrors: count(rx_errors),
      txBytes: count(tx_bytes),
      txErrors: count(tx_errors),
    }));
  const [defaultInterface, ...rest] = interfaces;
  return defaultInterface && NetworkUsage.fromPartial({ timestamp, defaultInterface, interfaces: rest });
}

function count(value: number): { value: bigint } {
  return { value: BigInt(Math.trunc(value)) };
}
