import { isDeepStrictEqual } from "node:util";
import type { CgroupLimits } from "../host/cgroups.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { PodCache, PodStore } from "../pipeline.ts";
import { qosCgroup } from "../pod/cgroup-path.ts";
import type { MemoryQos } from "../pod/memory-qos.ts";
import { type QosClass, qosClass } from "../pod/qos.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import { milliCpuToShares, minShares, podRequests } from "../pod/resources.ts";
import type { DesiredPod, AllocatedPod } from "../roles.ts";
import { isActive } from "../state/active.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { NodeCgroups, CgroupMeasures } from "./node-cgroups.ts";

export interface QosCgroupsDeps {
  readonly cgroups: (
    signal: AbortSignal,
  ) => Promise<Pick<NodeCgroups, "layout"> & { readonly cgroups: Pick<NodeCgroups["cgroups"], "ensure"> }>;
  readonly pods: Pick<PodStore, "list">;
  readonly worker: Pick<Column<WorkerView>, "get">;
  readonly podCache: Pick<PodCache, "get">;
  /** The pod with its allocated resources in place of its requested ones. */
  readonly allocatedPod: (pod: DesiredPod) => AllocatedPod;
  /** The target's huge page sizes, as named by cgroups. */
  readonly pageSizes: readonly string[];
  /** Set if feature gate MemoryQoS is on. */
  readonly memoryQos?: Pick<MemoryQos, "reserves"> | undefined;
  readonly measures: Pick<CgroupMeasures, "memoryReserved">;
}

/** The cgroups of the QoS classes Burstable and BestEffort, children of the cgroup of all pods. */
export type QosCgroups = ReturnType<typeof createQosCgroups>;

/** Limit that never applies, in bytes: huge pages are limited by the pods' own cgroups. */
const unbounded = 2 ** 62;

/** Creates the manager of QoS cgroups. BestEffort pods together get the minimum CPU share, and Burstable pods the sum of their requests;
 *  with feature gate MemoryQoS, memory is protected as well.
 *  @see https://github.com/kubernetes/design-proposals-archive/blob/main/node/pod-resource-management.md */
export function createQosCgroups({ pageSizes, ...deps }: QosCgroupsDeps) {
  const hugepages = Object.fromEntries(pageSizes.map((size) => [size, unbounded]));
  const current = new Map<QosClass, CgroupLimits>();
  // Serialized, so that a concurrent update cannot set an outdated sum after a newer one.
  const serialize = createSemaphore(1);
  const setTo = async (tier: QosClass, limits: CgroupLimits, signal: AbortSignal) => {
    if (isDeepStrictEqual(current.get(tier), limits)) return;
    const { cgroups, layout } = await deps.cgroups(signal);
    await cgroups.ensure(qosCgroup(tier, layout), limits, signal);
    current.set(tier, limits);
  };
  const ensure = async (signal: AbortSignal) => {
    const requested = sumRequests(deps);
    const protectedMemory = protectedMemoryOf(deps.memoryQos, requested);
    // The cgroup of the Guaranteed class is the parent of the others.
    if (protectedMemory)
      await setTo("Guaranteed", { memoryMinBytes: protectedMemory.guaranteed + protectedMemory.burstable }, signal);
    await setTo("BestEffort", { cpuShares: minShares, hugepages }, signal);
    const cpuShares = milliCpuToShares(requested.burstableMilli);
    await setTo(
      "Burstable",
      { cpuShares, hugepages, ...(protectedMemory && { memoryLowBytes: protectedMemory.burstable }) },
      signal,
    );
    if (protectedMemory) deps.measures.memoryReserved(protectedMemory.guaranteed, protectedMemory.burstable);
  };
  return {
    /** True if they have been created. */
    exist: () => current.has("Burstable"),
    /** Creates the QoS cgroups, and sets limits that have changed. */
    ensure: (signal: AbortSignal) => serialize(() => ensure(signal)),
    /** Sets all limits again, even if they have not changed. */
    reapplyLimits: (signal: AbortSignal) =>
      serialize(() => {
        current.clear();
        return ensure(signal);
      }),
  };
}

/** Sums of requests of active pods: milli-CPUs, and bytes of memory. */
interface RequestSums {
  burstableMilli: number;
  burstableBytes: number;
  guaranteedBytes: number;
}

function sumRequests({
  pods,
  worker,
  podCache,
  allocatedPod,
}: Pick<QosCgroupsDeps, "pods" | "worker" | "podCache" | "allocatedPod">) {
  const sum: RequestSums = { burstableMilli: 0, burstableBytes: 0, guaranteedBytes: 0 };
  for (const pod of pods.list()) {
    const qos = qosClass(pod.spec);
    const { uid } = pod.metadata;
    if (qos === "BestEffort" || !isActive(pod, worker.get(uid), podCache.get(uid))) continue;
    const { cpu, memory } = podRequests(allocatedPod(pod), { overhead: true });
    const bytes = quantityValue(memory ?? "0");
    if (qos === "Guaranteed") sum.guaranteedBytes += bytes;
    else {
      sum.burstableMilli += quantityMilli(cpu ?? "0");
      sum.burstableBytes += bytes;
    }
  }
  return sum;
}

/** Protected memory of each QoS class, bytes; undefined if the feature gate is off. */
function protectedMemoryOf(memoryQos: QosCgroupsDeps["memoryQos"], { guaranteedBytes, burstableBytes }: RequestSums) {
  if (!memoryQos) return undefined;
  return memoryQos.reserves
    ? { guaranteed: guaranteedBytes, burstable: burstableBytes }
    : { guaranteed: 0, burstable: 0 };
}
