import type { KubeletDeps, Observed } from "./kubelet.ts";
import type { RuntimeStages } from "./runtime.ts";
import type { DiskMeter } from "../host/disk-meter.ts";
import type { PodStore, StatusReader } from "../pipeline.ts";
import { createNodeStats } from "../stats/node-stats.ts";

interface StatsParts extends Pick<RuntimeStages, "layout" | "volumes"> {
  readonly pods: PodStore;
  readonly statuses: StatusReader;
  readonly disk: DiskMeter;
}

/** What is told of the use of the node. */
export function composeStats(
  { config, target, clock, log }: KubeletDeps,
  { pleg, agent, targetClock }: Observed,
  parts: StatsParts,
) {
  const { kubelet, nodeName, rootDir } = config;
  const { facts } = agent;
  return createNodeStats({
    ...parts,
    ...target,
    cache: pleg.cache,
    cgroupVersion: facts.cgroupVersion,
    facts,
    nodeName,
    rootDir,
    podLogsDir: kubelet.podLogsDir,
    diskPeriodMs: kubelet.volumeStatsAggPeriod,
    targetClock,
    clock,
    log,
  });
}
