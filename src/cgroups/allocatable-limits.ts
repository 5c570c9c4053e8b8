import type { CgroupLimits } from "../host/cgroups.ts";
import type { HostFacts } from "../host/facts.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import { type ResourceList, hugepagesOf, milliCpuToShares } from "../pod/resources.ts";

/** Resources that are reserved for processes outside of pods. */
export interface Reservations {
  readonly kubeReserved: ResourceList;
  readonly systemReserved: ResourceList;
}

/** Resources of the target that a cgroup can limit. */
export type TargetCapacity = Pick<HostFacts, "cpus" | "memoryBytes" | "maxPid" | "hugepages">;

/** Limits of all pods together: the target's capacity minus reservations. Eviction thresholds are not deducted, so that eviction
 *  precedes the kernel's OOM killer.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#node-allocatable */
export function allPodsLimits(capacity: TargetCapacity, { kubeReserved, systemReserved }: Reservations): CgroupLimits {
  const less = (name: string, total: number, unit: (quantity: string) => number) =>
    Math.max(0, total - unit(kubeReserved[name] ?? "0") - unit(systemReserved[name] ?? "0"));
  return {
    cpuShares: milliCpuToShares(less("cpu", capacity.cpus * 1000, quantityMilli)),
    memoryBytes: less("memory", capacity.memoryBytes, quantityValue),
    pids: less("pid", capacity.maxPid, quantityValue),
    hugepages: pagesOf(capacity),
  };
}

/** Limits of a reserved cgroup. @param compressible CPU only. */
export function reservedLimits(
  reserved: ResourceList,
  capacity: Pick<TargetCapacity, "hugepages">,
  compressible: boolean,
): CgroupLimits {
  const { cpu, memory, pid } = reserved;
  const shares = cpu === undefined ? {} : { cpuShares: milliCpuToShares(quantityMilli(cpu)) };
  if (compressible) return shares;
  return {
    ...shares,
    ...(memory !== undefined && { memoryBytes: quantityValue(memory) }),
    ...(pid !== undefined && { pids: quantityValue(pid) }),
    hugepages: Object.fromEntries(pageSizes(capacity).map((size) => [size, 0])),
  };
}

/** The target's huge page sizes, as named by cgroups. */
export function pageSizes(capacity: Pick<TargetCapacity, "hugepages">): readonly string[] {
  return Object.keys(pagesOf(capacity));
}

function pagesOf({ hugepages }: Pick<TargetCapacity, "hugepages">): Readonly<Record<string, number>> {
  const quantities = Object.entries(hugepages).map(([name, bytes]) => [name, String(bytes)] as const);
  return hugepagesOf(Object.fromEntries(quantities));
}
