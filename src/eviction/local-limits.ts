import type { Clock } from "../lib/clock.ts";
import type { PodStore } from "../pipeline.ts";
import { isCritical } from "../pod/containers.ts";
import { isTerminal } from "../pod/phase.ts";
import type { Evict, EvictedPod } from "./evict.ts";
import { firstExceededLimit, storageLimits } from "./storage-limits.ts";
import { type StorageUsageDeps, createStorageUsage } from "./storage-usage.ts";
import type { DiskLayout } from "./thresholds.ts";

export interface LocalLimitsDeps extends StorageUsageDeps {
  readonly desired: Pick<PodStore, "list">;
  readonly evict: Evict;
  readonly clock: Clock;
}

/** Evicts pods whose disk usage exceeds their limits; shortens the grace period of terminating ones. @returns the evicted
 *  pods, including those still terminating. */
export type EnforceLocalLimits = (disks: DiskLayout | undefined, signal: AbortSignal) => Promise<readonly EvictedPod[]>;

/** Pause after a walk: this many times its duration, capped. Walks over millions of files load the machine. */
const pauseFactor = 10;
const maxPauseMs = 300_000;
const graceSeconds = 1;

/** Enforces local storage limits. Costs nothing while no pod has a limit.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-storage/#resource-emphemeralstorage-consumption */
export function createLocalLimits(deps: LocalLimitsDeps): EnforceLocalLimits {
  const { desired, evict, clock } = deps;
  const measure = createStorageUsage(deps);
  let notBefore = Number.NEGATIVE_INFINITY;
  return async (disks, signal) => {
    if (clock.monotonic() < notBefore) return [];
    const limited = desired.list().flatMap((pod) => {
      const limits = isTerminal(pod.status?.phase) || isCritical(pod) ? undefined : storageLimits(pod);
      return limits ? [{ pod, limits }] : [];
    });
    if (limited.length === 0) return [];
    const began = clock.monotonic();
    // Layers on a separate file system do not count towards a container's limit, which applies to the node's file system.
    const usages = await measure(limited, { layersCount: !disks?.dedicatedImageFs }, signal);
    const ended = clock.monotonic();
    notBefore = ended + Math.min(pauseFactor * (ended - began), maxPauseMs);
    return limited.flatMap(({ pod, limits }, index) => {
      const usage = usages[index];
      const excess = usage && firstExceededLimit(limits, usage);
      const evicted = excess && evict(pod, { ...excess, graceSeconds });
      return evicted ? [evicted] : [];
    });
  };
}
