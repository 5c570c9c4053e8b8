import type { Service } from "../lib/service-group.ts";
import { onceThenIdle } from "../lib/service-group.ts";
import { createLogRotation } from "../logs/rotation.ts";
import { createOomWatcher } from "../node/oom-watcher.ts";
import { setOwnOomScore } from "../node/own-oom-score.ts";
import { checkResolvConf } from "../node/resolv-conf-check.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { rotationSettings } from "./settings.ts";

/** Creates log rotation and the OOM watcher, checks the target's resolver file once, and sets graftlet's own oom_score_adj if it runs on
 *  the target. */
export function createMaintenance(
  { config, target, clock, log, hand }: NodeContext,
  { events }: Cluster,
  { waitForTarget }: ObservedTarget,
): readonly Service[] {
  const { kubelet, nodeName } = config;
  const common = { ...target, clock, log, ...(waitForTarget && { waitForTarget }) };
  const settings = rotationSettings(config);
  const rotation = createLogRotation({ ...common, settings, cache: hand("logRotation").podCache });
  const oom = createOomWatcher({ ...common, nodeName, events });
  const score = onceThenIdle("oom-score", () => setOwnOomScore(kubelet.oomScoreAdj, log));
  const { resolvConf, clusterDomain } = kubelet;
  const check = { fs: target.host.fs, nodeName, resolvConf, clusterDomain, events };
  const resolver = onceThenIdle("resolv-conf", (signal) => checkResolvConf(check, signal));
  return [oom, resolver, ...(settings.maxSizeBytes < 0 ? [] : [rotation]), ...(target.link ? [] : [score])];
}
