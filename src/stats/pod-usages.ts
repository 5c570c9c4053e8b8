import type { ContainerUsage, DiskUsage, PodUsage, PodUsages } from "../eviction/ports.ts";
import type { DiskStats, DiskUse, MeasuredPod, PodDisk } from "./disk-stats.ts";
import { type PodSample, processesOf, type Sample } from "./sample.ts";

export interface PodUsagesDeps {
  /** A sample of cgroups, a few seconds old at most. */
  readonly sample: (signal: AbortSignal) => Promise<Sample>;
  /** Measures the pods' files now. */
  readonly readDisk: (pods: readonly MeasuredPod[], signal: AbortSignal) => Promise<DiskStats>;
}

/** Pods' usage, from the same measurements as /stats/summary. */
export function createPodUsages({ sample, readDisk }: PodUsagesDeps): PodUsages {
  return {
    async now(files, signal) {
      const { pods } = await sample(signal);
      const disk = files
        ? await readDisk(
            pods.map(({ uid, containers }) => ({ uid, running: containers.map(({ name }) => name) })),
            signal,
          )
        : undefined;
      return new Map(pods.map((pod) => [pod.uid, usageOf(pod, disk?.pods.get(pod.uid))]));
    },
  };
}

function usageOf(pod: PodSample, disk: PodDisk | undefined): PodUsage {
  const { measured, containers } = pod;
  const processes = processesOf(pod);
  const memoryBytes = measured?.memory?.workingSet;
  return {
    ...(memoryBytes !== undefined && { memoryBytes }),
    ...(processes !== undefined && { processes }),
    containers: new Map(
      containers.map((one) => [one.name, containerUsage(one.name, one.measured?.memory?.workingSet, disk)]),
    ),
    volumes: new Map(
      (disk?.volumes ?? []).flatMap(({ name, use, ephemeral = false }) => {
        const known = ephemeral ? fileUse(use) : undefined;
        return known ? [[name, known] as const] : [];
      }),
    ),
  };
}

function containerUsage(name: string, memoryBytes: number | undefined, disk: PodDisk | undefined): ContainerUsage {
  const layer = fileUse(disk?.layers.get(name));
  const logs = fileUse(disk?.logs.get(name));
  return { ...(memoryBytes !== undefined && { memoryBytes }), ...(layer && { layer }), ...(logs && { logs }) };
}

function fileUse(use: DiskUse | undefined): DiskUsage | undefined {
  if (use?.usedBytes === undefined) return undefined;
  return { bytes: use.usedBytes, inodes: use.inodesUsed ?? 0 };
}
