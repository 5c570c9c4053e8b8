import type { Service } from "../lib/service-group.ts";
import { onceThenIdle } from "../lib/service-group.ts";
import { createLogRotation } from "../logs/rotation.ts";
import { createOomWatcher } from "../node/oom-watcher.ts";
import { setOwnOomScore } from "../node/own-oom-score.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { rotationSettings } from "./settings.ts";

/** Creates log rotation and the OOM watcher, and sets graftlet's own oom_score_adj if it runs on the target. */
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
  return [oom, ...(settings.maxSizeBytes < 0 ? [] : [rotation]), ...(target.link ? [] : [score])];
}
