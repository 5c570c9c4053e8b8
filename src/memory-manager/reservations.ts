import { canonicalAmount, quantityNumber, quantityOrPercentage, quantityValue } from "../pod/quantity.ts";
import type { MemoryTopology } from "./numa-memory.ts";
import type { SystemReserved } from "./machine-state.ts";

type Amounts = Readonly<Record<string, string>>;

/** Memory that the configuration reserves. */
export interface Reservations {
  /** KubeletConfiguration.reservedMemory: quantities by resource, on single NUMA nodes. */
  readonly reservedMemory: readonly { readonly numaNode: number; readonly limits: Amounts }[];
  readonly kubeReserved: Amounts;
  readonly systemReserved: Amounts;
  /** evictionHard's `memory.available`: a quantity, or a percentage of the machine's memory. */
  readonly evictionHard: string;
}

/** Returns the memory reserved on each NUMA node. The amounts must add up to the reservation of the whole node.
 *  @throws Error in the kubelet's words. (kubelet, cm/memorymanager/memory_manager.go) */
export function systemReservedOf(reservations: Reservations, topology: MemoryTopology): SystemReserved {
  const { reservedMemory } = reservations;
  const unknown = reservedMemory.find(({ numaNode }) => !topology.some(({ id }) => id === numaNode));
  if (unknown)
    throw new Error(
      `the reserved memory configuration references a NUMA node ${unknown.numaNode} that does not exist on this machine`,
    );
  const types = new Set(["memory", ...reservedMemory.flatMap(({ limits }) => Object.keys(limits))]);
  for (const type of types) checkSum(type, reservations, topology);
  const reserved = new Map<number, ReadonlyMap<string, number>>();
  for (const { numaNode, limits } of reservedMemory) {
    const own = Object.entries(limits).map(([type, amount]) => [type, quantityValue(amount)] as const);
    reserved.set(numaNode, new Map([...(reserved.get(numaNode) ?? []), ...own]));
  }
  if (![...reserved.values()].some((own) => (own.get("memory") ?? 0) > 0))
    throw new Error("[memorymanager] you should specify the system reserved memory");
  return reserved;
}

/** Checks that the reservations of a type on NUMA nodes add up to the node's reservation. */
function checkSum(type: string, reservations: Reservations, topology: MemoryTopology): void {
  const { reservedMemory, kubeReserved, systemReserved, evictionHard } = reservations;
  const onNodes = reservedMemory.flatMap(({ limits }) => limits[type] ?? []);
  const machineBytes = topology.reduce((sum, { bytes }) => sum + bytes, 0);
  const kept = type === "memory" ? [String(quantityOrPercentage(evictionHard, machineBytes))] : [];
  const ofNode = [systemReserved[type] ?? "0", kubeReserved[type] ?? "0", ...kept];
  const sum = (amounts: readonly string[]) => amounts.reduce((total, amount) => total + quantityNumber(amount), 0);
  if (sum(onNodes) === sum(ofNode)) return;
  const [reserved, expected] = [onNodes, ofNode].map((amounts) => canonicalAmount(sum(amounts), "Mi"));
  throw new Error(
    `the total amount "${reserved}" of type "${type}" is not equal to the value "${expected}" determined by Node Allocatable feature`,
  );
}
