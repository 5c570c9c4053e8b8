import type { PressureStall } from "../host/cgroup-usage.ts";
import type { InterfaceTraffic } from "../host/net-dev.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { DiskStats, DiskUse, PodDisk } from "./disk-stats.ts";
import { type ContainerSample, type Measured, type PodSample, processesOf, type Sample } from "./sample.ts";

export interface SummaryInput {
  readonly nodeName: string;
  readonly sample: Sample;
  /** Absent if only CPU and memory are requested. */
  readonly disk?: DiskStats | undefined;
  readonly onlyCpuAndMemory: boolean;
  /** Path of the cgroup of all pods. */
  readonly podsPath: string;
  /** The kernel's maximum number of process IDs. */
  readonly maxPid: number;
}

/** /stats/summary. A pod's start time is the creation time of its sandbox, a container's its own creation time. (kubelet, with CRI)
 *  @see https://kubernetes.io/docs/reference/instrumentation/node-metrics/#summary-api-source */
export function summary(input: SummaryInput): object {
  const { sample, onlyCpuAndMemory } = input;
  return {
    node: {
      nodeName: input.nodeName,
      systemContainers: systemContainers(input),
      startTime: rfc3339(sample.bootedAt),
      ...usage(sample.node, sample.at, onlyCpuAndMemory),
      ...(!onlyCpuAndMemory && nodeParts(input)),
    },
    pods: sample.pods.map((pod) => podStats(input, pod)),
  };
}

/** The `pods` system container. The cgroups of graftlet and the runtime are unknown. */
function systemContainers({ sample, podsPath, onlyCpuAndMemory }: SummaryInput): readonly object[] {
  const measured = sample.groups.get(podsPath);
  if (!measured) return [];
  return [{ name: "pods", startTime: rfc3339(sample.bootedAt), ...usage(measured, sample.at, onlyCpuAndMemory) }];
}

function nodeParts({ sample: { at, network, processes }, disk, maxPid }: SummaryInput): object {
  const runtime = { ...named("imageFs", fs(disk?.images)), ...named("containerFs", fs(disk?.layers)) };
  return {
    network: networkStats(network, at),
    ...named("fs", fs(disk?.node)),
    ...(disk?.images && { runtime }),
    rlimit: { time: rfc3339(at), maxpid: maxPid, curproc: processes },
  };
}

function podStats(input: SummaryInput, pod: PodSample): object {
  const { sample, onlyCpuAndMemory, disk } = input;
  const { uid, name, namespace, measured, network } = pod;
  const onDisk = disk?.pods.get(uid);
  const processes = processesOf(pod);
  return {
    podRef: { name, namespace, uid },
    startTime: rfc3339(pod.startedAt),
    containers: pod.containers.map((container) => containerStats(container, input, onDisk)),
    ...(measured && usage(measured, sample.at, onlyCpuAndMemory)),
    ...(!onlyCpuAndMemory && {
      ...(network && { network: networkStats(network, sample.at) }),
      ...(onDisk && { volume: volumeStats(onDisk), ...named("ephemeral-storage", fs(onDisk.ephemeral)) }),
      ...(processes !== undefined && { process_stats: { process_count: processes } }),
    }),
  };
}

function containerStats(
  { name, createdAt, measured }: ContainerSample,
  { sample, onlyCpuAndMemory, disk }: SummaryInput,
  onDisk: PodDisk | undefined,
): object {
  return {
    name,
    startTime: rfc3339(createdAt),
    ...(measured && usage(measured, sample.at, onlyCpuAndMemory)),
    ...(!onlyCpuAndMemory && {
      ...named("rootfs", fs(onDisk?.layers.get(name) ?? withoutUse(disk?.layers))),
      ...named("logs", fs(onDisk?.logs.get(name) ?? withoutUse(disk?.node))),
    }),
  };
}

/** A file system without usage values. */
function withoutUse(space: DiskUse | undefined): DiskUse | undefined {
  if (!space) return undefined;
  const { usedBytes: _bytes, inodesUsed: _inodes, ...rest } = space;
  return rest;
}

function usage({ cpu, memory, io, nanoCores }: Measured, at: number, onlyCpuAndMemory: boolean): object {
  const time = rfc3339(at);
  const { limit, swap } = memory ?? {};
  return {
    ...(cpu && {
      cpu: { time, ...named("usageNanoCores", nanoCores), usageCoreNanoSeconds: cpu.usageNs, ...psi(cpu.pressure) },
    }),
    ...(memory && {
      memory: {
        time,
        ...(limit !== undefined && { availableBytes: Math.max(0, limit - memory.workingSet) }),
        usageBytes: memory.usage,
        workingSetBytes: memory.workingSet,
        ...named("rssBytes", memory.rss),
        ...named("pageFaults", memory.pageFaults),
        ...named("majorPageFaults", memory.majorPageFaults),
        ...psi(memory.pressure),
      },
    }),
    ...(swap !== undefined && {
      swap: {
        time,
        ...(swap.limit !== undefined && { swapAvailableBytes: Math.max(0, swap.limit - swap.usage) }),
        swapUsageBytes: swap.usage,
      },
    }),
    ...(!onlyCpuAndMemory && io && { io: { time, ...psi(io.pressure) } }),
  };
}

function psi(pressure: PressureStall | undefined): object {
  return pressure ? { psi: pressure } : {};
}

/** Name of a pod's default network interface. (kubelet) */
const defaultInterface = "eth0";

function networkStats(network: readonly InterfaceTraffic[], at: number): object {
  const interfaces = network.map(({ name, rx, tx }) => ({
    name,
    rxBytes: rx.bytes,
    rxErrors: rx.errors,
    txBytes: tx.bytes,
    txErrors: tx.errors,
  }));
  const main = interfaces.find(({ name }) => name === defaultInterface) ?? { name: "" };
  return { time: rfc3339(at), ...main, ...(interfaces.length > 0 && { interfaces }) };
}

function volumeStats({ volumes }: PodDisk): readonly object[] {
  return volumes.map(({ name, use, claim }) => ({
    ...fs(use),
    name,
    ...named("pvcRef", claim),
    ...named("volumeHealthStats", use.condition && { abnormal: use.condition.abnormal }),
  }));
}

function fs(use: DiskUse | undefined): object | undefined {
  if (!use) return undefined;
  const { at, availableBytes, capacityBytes, usedBytes, inodes, inodesFree, inodesUsed } = use;
  return {
    time: rfc3339(at),
    availableBytes,
    capacityBytes,
    ...named("usedBytes", usedBytes),
    inodesFree,
    inodes,
    ...named("inodesUsed", inodesUsed),
  };
}

/** A field that is present only if its value is known. */
function named(name: string, value: number | object | undefined): object {
  return value === undefined ? {} : { [name]: value };
}
