import { createTurns } from "../lib/turns.ts";
import type { PodCache, PodStore } from "../pipeline.ts";
import { tierCgroup } from "../pod/cgroup-path.ts";
import { type QosClass, qosClass } from "../pod/qos.ts";
import { quantityMilli } from "../pod/quantity.ts";
import { milliCpuToShares, minShares, podRequests } from "../pod/resources.ts";
import type { AskedPod, GivenPod } from "../roles.ts";
import { isActive } from "../state/active.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/rows.ts";
import type { NodeCgroups } from "./node-cgroups.ts";

interface Opened extends Pick<NodeCgroups, "layout"> {
  readonly cgroups: Pick<NodeCgroups["cgroups"], "ensure">;
}

export interface TiersDeps {
  readonly cgroups: (signal: AbortSignal) => Promise<Opened>;
  readonly pods: Pick<PodStore, "list">;
  readonly worker: Pick<Column<WorkerView>, "get">;
  readonly seen: Pick<PodCache, "get">;
  /** The pod with what it has been given in place of what it asks for. */
  readonly allocated: (pod: AskedPod) => GivenPod;
  /** Sizes of huge pages that the target has, as cgroups name them. */
  readonly pageSizes: readonly string[];
}

/** The cgroups of the quality of service classes Burstable and BestEffort, below that of all pods. */
export interface Tiers {
  /** Makes them, and sets what has changed since they were last set. */
  ensure(signal: AbortSignal): Promise<void>;
  /** Sets all of their limits, whatever they are. */
  repair(signal: AbortSignal): Promise<void>;
}

/** No limit on huge pages: the pods' own hold. */
const unbounded = 2 ** 62;

/** Gives BestEffort pods together the least share of the CPU, and Burstable pods together the sum of their requests.
 *  @see https://github.com/kubernetes/design-proposals-archive/blob/main/node/pod-resource-management.md */
export function createTiers({ pageSizes, ...deps }: TiersDeps): Tiers {
  const hugepages = Object.fromEntries(pageSizes.map((size) => [size, unbounded]));
  const set = new Map<QosClass, number>();
  // Of pods that come side by side each sums up what it knows of: an older sum must not be set after a newer one.
  const inTurn = createTurns(1);
  const setTo = async (tier: QosClass, cpuShares: number, signal: AbortSignal) => {
    if (set.get(tier) === cpuShares) return;
    const { cgroups, layout } = await deps.cgroups(signal);
    await cgroups.ensure(tierCgroup(tier, layout), { cpuShares, hugepages }, signal);
    set.set(tier, cpuShares);
  };
  const ensure = async (signal: AbortSignal) => {
    await setTo("BestEffort", minShares, signal);
    await setTo("Burstable", burstableShares(deps), signal);
  };
  return {
    ensure: (signal) => inTurn(() => ensure(signal)),
    repair: (signal) =>
      inTurn(() => {
        set.clear();
        return ensure(signal);
      }),
  };
}

function burstableShares({ pods, worker, seen, allocated }: Omit<TiersDeps, "cgroups" | "pageSizes">): number {
  const holds = (pod: AskedPod) => isActive(pod, worker.get(pod.metadata.uid), seen.get(pod.metadata.uid));
  const milli = pods
    .list()
    .filter((pod) => qosClass(pod.spec) === "Burstable" && holds(pod))
    .map((pod) => quantityMilli(podRequests(allocated(pod), { overhead: true })["cpu"] ?? "0"));
  return milliCpuToShares(milli.reduce((sum, each) => sum + each, 0));
}
