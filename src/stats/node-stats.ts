import type { PodUsages, ContainerUsage, DiskUsage, PodUsage } from "../eviction/ports.ts";
import type { HostFacts } from "../host/facts.ts";
import type { Logger, ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { EventSink, PodCache } from "../pipeline.ts";
import { containerNameOf } from "../pod/runs.ts";
import { qosCgroup } from "../pod/cgroup-path.ts";
import { cadvisorMetrics } from "./cadvisor-metrics.ts";
import { claimMetrics, type ClaimUsageDeps, claimUsage } from "./claim-usage.ts";
import { createDiskReader, type DiskDeps } from "./disk-reader.ts";
import type { DiskStats, DiskUse, MeasuredPod, PodDisk } from "./disk-stats.ts";
import { type Machine, readMachine } from "./machine.ts";
import { createCachedValue } from "./cached-value.ts";
import { resourceMetrics } from "./resource-metrics.ts";
import { runningPods } from "./running-pods.ts";
import { type Sample, type PodSample, processesOf } from "./sample.ts";
import { createSampler, type SamplerDeps } from "./sampler.ts";
import { summary } from "./summary.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { podReference } from "../pod/reference.ts";

export interface NodeStatsDeps extends SamplerDeps, DiskDeps {
  readonly host: DiskDeps["host"];
  readonly runtime: SamplerDeps["runtime"] & DiskDeps["runtime"];
  readonly nodeName: string;
  readonly facts: HostFacts;
  /** KubeletConfiguration.volumeStatsAggPeriod, milliseconds; a negative value disables disk usage. */
  readonly diskPeriodMs: number;
  /** Receives events of abnormal volumes; absent if drivers are not queried for volume health. */
  readonly healthEvents: EventSink | undefined;
  readonly log: Logger;
}

/** Usage of a node, by path of the kubelet API. */
export interface NodeStats {
  /** Response of /stats/summary. @throws CodedError if nothing can be measured. */
  summary(onlyCpuAndMemory: boolean, signal: AbortSignal): Promise<object>;
  /** Text of /metrics/resource, which has a metric for failed measurements. */
  resource(signal: AbortSignal): Promise<string>;
  cadvisor(signal: AbortSignal): Promise<string>;
  /** The kubelet_volume_stats_* metrics of /metrics. */
  claims(signal: AbortSignal): Promise<string>;
  readonly usages: PodUsages;
}

/** Maximum age of a sample, milliseconds: the kubelet's housekeeping interval. */
const maxSampleAgeMs = 10_000;
const sampleTimeoutMs = 60_000;
/** Interval between two samples for CPU usage if the last one is missing or too old, milliseconds. */
const secondSampleMs = 1_000;
const maxSampleGapMs = 120_000;
/** Timeouts of a walk over files, which may be slow, and of the first request that waits for it, milliseconds. */
const walkTimeoutMs = 600_000;
const firstWalkTimeoutMs = 5_000;
/** The kubelet's period for a configured 0, milliseconds. */
const defaultDiskPeriodMs = 60_000;

/** Measures the node on request. Without requests, nothing is measured. */
export function createNodeStats(deps: NodeStatsDeps): NodeStats & { readonly runnables: readonly Runnable[] } {
  const { clock, log, podCache, diskPeriodMs } = deps;
  const sample = createSampler(deps);
  const readDisk = createDiskReader(deps);
  let sampledAt = Number.NEGATIVE_INFINITY;
  let machine: Machine | undefined;
  const samples = createCachedValue<Sample>({
    name: "node statistics",
    async read(signal) {
      if (clock.monotonic() - sampledAt > maxSampleGapMs) {
        await sample(signal);
        await clock.sleep(secondSampleMs, signal);
      }
      sampledAt = clock.monotonic();
      return sample(signal);
    },
    maxAgeMs: maxSampleAgeMs,
    timeoutMs: sampleTimeoutMs,
    onError: (error) => log.warn({ err: error }, "cannot measure the node's resource usage"),
    clock,
  });
  const diskIntervalMs = diskPeriodMs === 0 ? defaultDiskPeriodMs : diskPeriodMs;
  const { healthEvents: events } = deps;
  const health =
    events && diskIntervalMs > 0 ? [createVolumeHealth({ ...deps, events, intervalMs: diskIntervalMs })] : [];
  const diskStats = createCachedValue<DiskStats>({
    name: "disk statistics",
    read: (signal) =>
      readDisk(
        runningPods(podCache).map(({ uid, containers }) => ({ uid, running: containers.map(containerNameOf) })),
        signal,
      ),
    maxAgeMs: diskIntervalMs,
    timeoutMs: walkTimeoutMs,
    onError: (error) => log.warn({ err: error }, "cannot measure the pods' disk usage"),
    clock,
  });
  const disk = async (signal: AbortSignal) =>
    diskPeriodMs < 0 ? undefined : diskStats.latest(firstWalkTimeoutMs, signal);
  const sampleOrUndefined = (signal: AbortSignal) =>
    samples.fresh(signal).catch((error: unknown) => {
      if (!signal.aborted) log.warn({ err: error }, "cannot measure the node's resource usage");
      return undefined;
    });
  return {
    runnables: [samples, diskStats, ...health],
    usages: createPodUsages({ sample: samples.fresh, readDisk }),
    async summary(onlyCpuAndMemory, signal) {
      const [now, onDisk, layout] = await Promise.all([
        samples.fresh(signal),
        onlyCpuAndMemory ? undefined : disk(signal),
        deps.layout(signal),
      ]);
      return summary({
        nodeName: deps.nodeName,
        sample: now,
        disk: onDisk,
        onlyCpuAndMemory,
        podsPath: qosCgroup("Guaranteed", layout),
        maxPid: deps.facts.maxPid,
      });
    },
    resource: async (signal) => resourceMetrics(await sampleOrUndefined(signal)),
    claims: (signal) => claimMetrics(deps, signal),
    cadvisor: async (signal) => {
      const [now, onDisk] = await Promise.all([sampleOrUndefined(signal), disk(signal)]);
      // Constant until the target reboots.
      machine ??= await readMachine(deps.host.fs, deps.facts, signal);
      return cadvisorMetrics({ sample: now, disk: onDisk, machine });
    },
  };
}

interface PodUsagesDeps {
  /** A sample of cgroups, a few seconds old at most. */
  readonly sample: (signal: AbortSignal) => Promise<Sample>;
  /** Measures the pods' files now. */
  readonly readDisk: (pods: readonly MeasuredPod[], signal: AbortSignal) => Promise<DiskStats>;
}

/** Pods' usage, from the same measurements as /stats/summary. */
function createPodUsages({ sample, readDisk }: PodUsagesDeps): PodUsages {
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

interface VolumeHealthDeps extends ClaimUsageDeps, ClockAndLog {
  readonly podCache: PodCache;
  readonly events: EventSink;
  /** Interval between two checks, milliseconds. */
  readonly intervalMs: number;
}

/** Emits an event for each claim of a running pod that its CSI driver reports as abnormal, at every check (feature gate
 *  CSIVolumeHealth).
 *  @see https://kubernetes.io/docs/concepts/storage/volume-health-monitoring/ */
export function createVolumeHealth(deps: VolumeHealthDeps): Runnable {
  const { podCache, desired, events, intervalMs, clock, log } = deps;
  return runPeriodically(
    { name: "volume health", intervalMs, initialDelayMs: intervalMs, clock, log },
    async (signal) => {
      for (const { uid } of runningPods(podCache)) {
        const pod = desired.get(uid);
        if (!pod) continue;
        for (const { name, use } of await claimUsage(deps, pod, signal))
          if (use.condition?.abnormal)
            events.event(
              podReference(pod),
              "Warning",
              "VolumeConditionAbnormal",
              `Volume ${name}: ${use.condition.message}`,
            );
      }
    },
  );
}
