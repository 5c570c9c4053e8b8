import { createTargetRefusal } from "../host/target-refusal.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import {
  idleMachine,
  type MachineState,
  type MemoryTable,
  reserveBlock,
  sumOver,
  type SystemReserved,
} from "./machine-state.ts";
import { readMemoryTopology, type MemoryTopology } from "./numa-memory.ts";
import { readMemoryState, type SavedMemory } from "./state-file.ts";
import type { MemoryState } from "./static-policy.ts";
import { idsOfNodes } from "../lib/numa-nodes.ts";
import { wholePod } from "../pod/pinned-resources.ts";
import { canonicalAmount, quantityNumber, quantityOrPercentage, quantityValue } from "../pod/quantity.ts";

export interface MemoryManagerSettings extends MemoryReservations {
  readonly rootDir: string;
  /** KubeletConfiguration.memoryManagerPolicy */
  readonly policy: "None" | "Static";
}

/** Reads the NUMA nodes' memory and the saved state for the memory manager; does not change the target.
 *  @returns the target's memory, with the allocations from before a restart; undefined for policy None.
 *  @throws TargetError in the kubelet's words if the target does not support the policy, or the saved state is from another policy or
 *  machine; unavailable. */
export async function openMemory(
  settings: MemoryManagerSettings,
  host: Pick<Host, "run" | "budget"> & { readonly fs: Pick<Host["fs"], "readFile"> },
  log: Logger,
  signal: AbortSignal,
): Promise<MemoryState | undefined> {
  const { rootDir } = settings;
  const refusal = createTargetRefusal("MemoryManager");
  if (settings.policy === "None") {
    const saved = await readMemoryState(host.fs, rootDir, log, signal);
    if (saved) refusal.check(() => checkMemoryPolicy(saved, "None"));
    return undefined;
  }
  const [saved, topology] = await Promise.all([
    readMemoryState(host.fs, rootDir, log, signal),
    refusal.read(readMemoryTopology(host, signal)),
  ]);
  return refusal.check(() => {
    const idle = idleMachine(topology, systemReservedOf(settings, topology));
    return saved ? restoredState(idle, saved) : { machine: idle, assigned: new Map() };
  });
}

/** Describes a target's memory in a sentence. */
export function describeMemory({ machine }: MemoryState): string {
  const nodes = [...machine].map(([id, { tables }]) => {
    const { allocatable = 0, systemReserved = 0, reserved = 0 } = tables.get("memory") ?? {};
    const [all, system, ofPods] = [allocatable, systemReserved, reserved].map((bytes) => (bytes / 2 ** 30).toFixed(1));
    return `NUMA node ${id}: ${all} GiB for pods, ${ofPods} GiB of it allocated to Guaranteed pods; ${system} GiB reserved`;
  });
  return nodes.join("; ");
}

/** A state, and the file that it was read from. */
type ReadMemory = SavedMemory & { readonly file: string };

/** Checks that a state was written with this policy. @throws Error in the kubelet's words. */
export function checkMemoryPolicy({ policy, file }: Pick<ReadMemory, "policy" | "file">, configured: string): void {
  if (policy === configured) return;
  throw new Error(
    `could not restore state from checkpoint: [memorymanager] configured policy "${configured}" differs from state checkpoint policy "${policy}", please drain this node and delete the memory manager checkpoint file "${file}" before restarting Kubelet`,
  );
}

/** Checks that a state fits the machine and its reservations. @param idle the machine without containers.
 *  @returns the state to continue with. @throws Error in the kubelet's words. (kubelet, cm/memorymanager/policy_static.go) */
export function restoredState(idle: MachineState, saved: ReadMemory): MemoryState {
  checkMemoryPolicy(saved, "Static");
  const { machine, assigned, file } = saved;
  const invalid = (problem: string) =>
    new Error(
      `[memorymanager] ${problem}: please drain this node and delete the memory manager checkpoint file "${file}"`,
    );
  if (machine.size === 0 && assigned.size > 0)
    throw invalid("machine state can not be empty when it has memory assignments");
  if (machine.size === 0) return { machine: idle, assigned };
  let expected = idle;
  for (const [pod, own] of assigned) {
    const held = own.get(wholePod);
    for (const [container, blocks] of held ? [["", held] as const] : own) {
      for (const block of blocks) {
        const used = idsOfNodes(block.nodes).map((id) => idle.get(id));
        const where = `(pod: ${pod}, container: ${container}) the memory assignment uses`;
        if (used.includes(undefined)) throw invalid(`${where} the NUMA that does not exist`);
        if (!used.every((node) => node?.tables.has(block.type)))
          throw invalid(`${where} memory resource that does not exist`);
        expected = reserveBlock(expected, block, block.bytes);
      }
    }
  }
  if (!isSameMachine(machine, expected)) throw invalid("the expected machine state is different from the real one");
  return { machine, assigned };
}

/** True if two states describe the same machine with the same reservations, and containers have the same memory on each group of nodes.
 *  The distribution among the nodes of a group depends on the order of past allocations and is ignored. */
function isSameMachine(saved: MachineState, expected: MachineState): boolean {
  if (saved.size !== expected.size) return false;
  return [...saved].every(([id, node]) => {
    const other = expected.get(id);
    if (other?.assignments !== node.assignments || other.group !== node.group) return false;
    if (other.tables.size !== node.tables.size) return false;
    return [...node.tables].every(([type, table]) => {
      const same = (field: "reserved" | "free") =>
        sumOver(saved, node.group, type, field) === sumOver(expected, node.group, type, field);
      return isSameTable(table, other.tables.get(type)) && same("reserved") && same("free");
    });
  });
}

function isSameTable(one: MemoryTable, other: MemoryTable | undefined): boolean {
  return (
    one.total === other?.total && one.systemReserved === other.systemReserved && one.allocatable === other.allocatable
  );
}

type Amounts = Readonly<Record<string, string>>;

/** Memory that the configuration reserves. */
export interface MemoryReservations {
  /** KubeletConfiguration.reservedMemory: quantities by resource, on single NUMA nodes. */
  readonly reservedMemory: readonly { readonly numaNode: number; readonly limits: Amounts }[];
  readonly kubeReserved: Amounts;
  readonly systemReserved: Amounts;
  /** evictionHard's `memory.available`: a quantity, or a percentage of the machine's memory. */
  readonly evictionHard: string;
}

/** Returns the memory reserved on each NUMA node. The amounts must add up to the reservation of the whole node.
 *  @throws Error in the kubelet's words. (kubelet, cm/memorymanager/memory_manager.go) */
export function systemReservedOf(reservations: MemoryReservations, topology: MemoryTopology): SystemReserved {
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
function checkSum(type: string, reservations: MemoryReservations, topology: MemoryTopology): void {
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
