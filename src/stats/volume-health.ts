import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Service } from "../lib/service-group.ts";
import type { EventSink, PodCache } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import { type ClaimDeps, claimUsage } from "./claim-usage.ts";
import { runningPods } from "./running-pods.ts";

export interface VolumeHealthDeps extends ClaimDeps {
  readonly cache: PodCache;
  readonly events: EventSink;
  /** Interval between two checks, milliseconds. */
  readonly intervalMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Emits an event for each claim of a running pod that its CSI driver reports as abnormal, at every check (feature gate
 *  CSIVolumeHealth).
 *  @see https://kubernetes.io/docs/concepts/storage/volume-health-monitoring/ */
export function createVolumeHealth(deps: VolumeHealthDeps): Service {
  const { cache, pods, events, intervalMs, clock, log } = deps;
  return runPeriodically(
    { name: "volume health", intervalMs, initialDelayMs: intervalMs, clock, log },
    async (signal) => {
      for (const { uid } of runningPods(cache)) {
        const pod = pods.get(uid);
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
