import type { HostFacts } from "../host/facts.ts";
import { canonicalBytes, quantityMilli, quantityValue, quantityOrPercentage } from "../pod/quantity.ts";
import { type ResourceList, isHugePages } from "../pod/resources.ts";

export interface CapacityInput {
  readonly facts: Pick<HostFacts, "cpus" | "memoryBytes" | "hugepages">;
  /** Bytes of the file system that holds the root directory; undefined if local storage is not accounted for. */
  readonly storageBytes: number | undefined;
  readonly maxPods: number;
  /** 0 for no limit. */
  readonly podsPerCore: number;
}

/** Capacity of the node: the target's resources. @see https://kubernetes.io/docs/reference/node/node-status/#capacity */
export function nodeCapacity({ facts, storageBytes, maxPods, podsPerCore }: CapacityInput): ResourceList {
  const pods = podsPerCore > 0 ? Math.min(maxPods, podsPerCore * facts.cpus) : maxPods;
  const pages = Object.entries(facts.hugepages).map(([name, bytes]) => [name, formatBytes(bytes)] as const);
  return {
    cpu: String(facts.cpus),
    memory: `${Math.floor(facts.memoryBytes / 1024)}Ki`,
    ...(storageBytes !== undefined && { "ephemeral-storage": `${Math.floor(storageBytes / 1024)}Ki` }),
    pods: String(pods),
    ...Object.fromEntries(pages),
  };
}

export interface ReservedInput {
  readonly kubeReserved: ResourceList;
  readonly systemReserved: ResourceList;
  /** Thresholds by signal such as `memory.available`: a quantity or a percentage. */
  readonly evictionHard: ResourceList;
}

/** Allocatable resources: capacity less reservations and hard eviction thresholds; huge pages come out of memory.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/ */
export function nodeAllocatable(capacity: ResourceList, reserved: ReservedInput): ResourceList {
  const taken = (name: string) =>
    quantityMilli(reserved.kubeReserved[name] ?? "0") + quantityMilli(reserved.systemReserved[name] ?? "0");
  const pages = Object.entries(capacity)
    .filter(([name]) => isHugePages(name))
    .reduce((sum, [, bytes]) => sum + quantityValue(bytes), 0);
  return Object.fromEntries(
    Object.entries(capacity).map(([name, total]) => {
      if (name === "cpu") return [name, formatMilli(Math.max(0, quantityMilli(total) - taken(name)))];
      const size = quantityValue(total);
      const left =
        size -
        Math.ceil(taken(name) / 1000) -
        keptFree(name, size, reserved.evictionHard) -
        (name === "memory" ? pages : 0);
      return [name, name === "pods" ? String(Math.max(0, left)) : formatBytes(Math.max(0, left))];
    }),
  );
}

/** Error text for reservations above the capacity, in the kubelet's words; undefined if all fit.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#general-guidelines */
export function overReserved(capacity: ResourceList, reserved: ReservedInput): string | undefined {
  const complaints = Object.entries(capacity).flatMap(([name, total]) => {
    const each = [reserved.systemReserved[name], reserved.kubeReserved[name]];
    const kept = keptFree(name, quantityValue(total), reserved.evictionHard);
    const sum = each.reduce((milli, quantity) => milli + quantityMilli(quantity ?? "0"), kept * 1000);
    if (sum <= quantityMilli(total)) return [];
    const text = name === "cpu" ? formatMilli(sum) : canonicalBytes(Math.ceil(sum / 1000), 1024);
    return [
      `Resource ${JSON.stringify(name)} has a reservation of ${text} but capacity of ${total}. Expected capacity >= reservation.`,
    ];
  });
  return complaints.length > 0 ? `invalid Node Allocatable configuration. ${complaints.join(" ")}` : undefined;
}

function keptFree(name: string, size: number, evictionHard: ResourceList): number {
  const signal = name === "memory" ? "memory.available" : name === "ephemeral-storage" ? "nodefs.available" : undefined;
  return signal === undefined ? 0 : quantityOrPercentage(evictionHard[signal] ?? "0", size);
}

function formatMilli(milli: number): string {
  return milli % 1000 === 0 ? String(milli / 1000) : `${milli}m`;
}

/** Bytes in the largest binary unit up to Ki that divides them. */
function formatBytes(bytes: number): string {
  return bytes > 0 && bytes % 1024 === 0 ? `${bytes / 1024}Ki` : String(bytes);
}
