import type { PodUsages } from "../eviction/ports.ts";
import type { HostFacts } from "../host/facts.ts";
import type { Logger } from "../lib/log.ts";
import type { Service } from "../lib/service-group.ts";
import type { EventSink } from "../pipeline.ts";
import { containerNameOf } from "../pod/runs.ts";
import { qosCgroup } from "../pod/cgroup-path.ts";
import { cadvisorMetrics } from "./cadvisor-metrics.ts";
import { claimMetrics } from "./claim-usage.ts";
import { createDiskReader, type DiskDeps } from "./disk-reader.ts";
import type { DiskStats } from "./disk-stats.ts";
import { createPodUsages } from "./pod-usages.ts";
import { type Machine, readMachine } from "./machine.ts";
import { createCachedValue } from "./cached-value.ts";
import { resourceMetrics } from "./resource-metrics.ts";
import { runningPods } from "./running-pods.ts";
import type { Sample } from "./sample.ts";
import { createSampler, type SamplerDeps } from "./sampler.ts";
import { summary } from "./summary.ts";
import { createVolumeHealth } from "./volume-health.ts";

export interface NodeStatsDeps extends SamplerDeps, DiskDeps {
  readonly host: DiskDeps["host"];
  readonly runtime: SamplerDeps["runtime"] & DiskDeps["runtime"];
  readonly nodeName: string;
  readonly facts: HostFacts;
  /** KubeletConfiguration.volumeStatsAggPeriod, milliseconds; a negative value disables disk usage. */
  readonly diskPeriodMs: number;
  /** Receives events of abnormal volumes; absent if drivers are not queried for volume health. */
  readonly healthEvents?: EventSink;
  readonly log: Logger;
}

/** Usage of a node, by path of the kubelet API. */
export interface NodeStats {
  /** @throws CodedError if nothing can be measured. */
  summary(onlyCpuAndMemory: boolean, signal: AbortSignal): Promise<object>;
  /** The text contains a metric for failed measurements. */
  resource(signal: AbortSignal): Promise<string>;
  cadvisor(signal: AbortSignal): Promise<string>;
  /** The kubelet_volume_stats_* metrics of /metrics. */
  claims(signal: AbortSignal): Promise<string>;
  /** Pods' usage. */
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
export function createNodeStats(deps: NodeStatsDeps): NodeStats & { readonly services: readonly Service[] } {
  const { clock, log, cache, diskPeriodMs } = deps;
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
        runningPods(cache).map(({ uid, containers }) => ({ uid, running: containers.map(containerNameOf) })),
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
    services: [samples, diskStats, ...health],
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
