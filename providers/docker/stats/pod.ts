import type { ContainerInfo } from "dockerode";
import {
  type ContainerStats,
  CpuUsage,
  LinuxPodSandboxStats,
  MemoryUsage,
  PodSandboxAttributes,
  PodSandboxStats,
  type UInt64Value,
} from "../../../src/gen/cri.ts";
import { criLabels } from "../container/labels.ts";
import { parseSandboxName } from "../container/names.ts";
import type { Usage } from "./sample.ts";

/** A container's usage in CRI's form, and the fields that CRI's container stats lack. */
export interface MeasuredContainer {
  readonly stats: ContainerStats;
  readonly usage: Usage | undefined;
}

/** A pod's usage: the sum of its sandbox and running containers, and the sandbox's network. Docker does not measure
 *  pods, so usage of ended containers is missing. */
export function podStats(
  sandbox: ContainerInfo,
  sandboxUsage: Usage | undefined,
  containers: readonly MeasuredContainer[],
): PodSandboxStats {
  const metadata = sandbox.Names.map(parseSandboxName).find((name) => name !== undefined);
  const usages = [sandboxUsage, ...containers.map(({ usage }) => usage)].filter((usage) => usage !== undefined);
  return PodSandboxStats.fromPartial({
    attributes: PodSandboxAttributes.fromPartial({ id: sandbox.Id, metadata, ...criLabels(sandbox.Labels) }),
    linux: LinuxPodSandboxStats.fromPartial({
      ...(usages.length > 0 && sumUsage(usages)),
      network: sandboxUsage?.network,
      containers: containers.map(({ stats }) => stats),
    }),
  });
}

function sumUsage(usages: readonly Usage[]): Pick<LinuxPodSandboxStats, "cpu" | "memory" | "process"> {
  const timestamp = usages.map(({ cpu }) => cpu.timestamp).reduce((a, b) => (a > b ? a : b));
  const total = (read: (usage: Usage) => UInt64Value | undefined) => ({
    value: usages.reduce((sum, usage) => sum + (read(usage)?.value ?? 0n), 0n),
  });
  return LinuxPodSandboxStats.fromPartial({
    cpu: CpuUsage.fromPartial({ timestamp, usageCoreNanoSeconds: total(({ cpu }) => cpu.usageCoreNanoSeconds) }),
    memory: MemoryUsage.fromPartial({
      timestamp,
      usageBytes: total(({ memory }) => memory.usageBytes),
      workingSetBytes: total(({ memory }) => memory.workingSetBytes),
      rssBytes: total(({ memory }) => memory.rssBytes),
      pageFaults: total(({ memory }) => memory.pageFaults),
      majorPageFaults: total(({ memory }) => memory.majorPageFaults),
    }),
    process: { timestamp, processCount: { value: usages.reduce((sum, { processes }) => sum + processes, 0n) } },
  });
}
