import type * as cri from "../gen/cri.ts";
import type { GroupUsage } from "../host/cgroup-usage.ts";
import type { InterfaceTraffic } from "../host/net-dev.ts";
import { hasCode } from "../lib/errors.ts";
import { podUidLabel } from "../pod/labels.ts";
import type { Stats } from "../seams/runtime.ts";

/** Usage of pods according to the runtime: for pods whose cgroups are not found, such as those in virtual machines. */
export interface RuntimeUsage {
  /** Usage of containers, by container ID. */
  readonly containers: ReadonlyMap<string, GroupUsage>;
  /** Usage of pods, by UID; only from runtimes that measure pods. */
  readonly pods: ReadonlyMap<string, GroupUsage>;
  readonly networks: ReadonlyMap<string, readonly InterfaceTraffic[]>;
}

/** Queries the runtime with one call. */
export async function readRuntimeUsage(runtime: Stats, signal: AbortSignal): Promise<RuntimeUsage> {
  const pods = (await listPods(runtime, signal)) ?? [];
  const containers =
    pods.length > 0
      ? pods.flatMap(({ linux }) => linux?.containers ?? [])
      : await runtime.listContainerStats(undefined, signal);
  const uidOf = ({ attributes }: cri.PodSandboxStats) => attributes?.labels[podUidLabel] ?? "";
  return {
    containers: new Map(containers.map((stats) => [stats.attributes?.id ?? "", usageOf(stats)])),
    pods: new Map(pods.map((pod) => [uidOf(pod), { ...usageOf(pod.linux ?? {}), ...processesOf(pod.linux) }])),
    networks: new Map(pods.map((pod) => [uidOf(pod), trafficOf(pod.linux?.network)])),
  };
}

async function listPods(runtime: Stats, signal: AbortSignal): Promise<readonly cri.PodSandboxStats[] | undefined> {
  try {
    return await runtime.listPodSandboxStats?.(undefined, signal);
  } catch (error) {
    if (hasCode(error, "unimplemented")) return undefined;
    throw error;
  }
}

interface CriUsage {
  readonly cpu?: cri.CpuUsage | undefined;
  readonly memory?: cri.MemoryUsage | undefined;
}

function usageOf({ cpu, memory }: CriUsage): GroupUsage {
  const usageNs = numberOf(cpu?.usageCoreNanoSeconds);
  const workingSet = numberOf(memory?.workingSetBytes);
  const available = numberOf(memory?.availableBytes);
  return {
    ...(usageNs !== undefined && { cpu: { usageNs } }),
    ...(memory &&
      workingSet !== undefined && {
        memory: {
          usage: numberOf(memory.usageBytes) ?? workingSet,
          workingSet,
          ...named("rss", memory.rssBytes),
          ...named("pageFaults", memory.pageFaults),
          ...named("majorPageFaults", memory.majorPageFaults),
          // A runtime without a limit reports 0.
          ...(available !== undefined && available > 0 && { limit: available + workingSet }),
        },
      }),
  };
}

function processesOf(linux: cri.LinuxPodSandboxStats | undefined): Pick<GroupUsage, "processes"> {
  return named("processes", linux?.process?.processCount);
}

function trafficOf(network: cri.NetworkUsage | undefined): readonly InterfaceTraffic[] {
  const all = [network?.defaultInterface, ...(network?.interfaces ?? [])].filter((one) => one !== undefined);
  return all.map(({ name, rxBytes, rxErrors, txBytes, txErrors }) => ({
    name,
    rx: { bytes: numberOf(rxBytes) ?? 0, errors: numberOf(rxErrors) ?? 0, packets: 0, dropped: 0 },
    tx: { bytes: numberOf(txBytes) ?? 0, errors: numberOf(txErrors) ?? 0, packets: 0, dropped: 0 },
  }));
}

function numberOf(value: cri.UInt64Value | undefined): number | undefined {
  return value && Number(value.value);
}

function named<Name extends string>(name: Name, value: cri.UInt64Value | undefined): { [K in Name]?: number } {
  return value ? ({ [name]: Number(value.value) } as { [K in Name]?: number }) : {};
}
