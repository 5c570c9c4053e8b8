import { CodedError } from "../lib/errors.ts";
import { type NumaNodes, idsOfNodes, numaNodes } from "../lib/numa-nodes.ts";
import type { MemoryTopology } from "./numa-memory.ts";

/** Memory of one type on a NUMA node, in bytes. */
export interface MemoryTable {
  readonly total: number;
  /** Memory reserved by `reservedMemory`. */
  readonly systemReserved: number;
  /** Memory that can be allocated to containers. */
  readonly allocatable: number;
  /** Memory allocated to containers. */
  readonly reserved: number;
  readonly free: number;
}

export interface NumaNodeState {
  /** Number of memory blocks on the node. */
  readonly assignments: number;
  /** Nodes over which its blocks are distributed; the node itself if its blocks are on this node alone. */
  readonly group: NumaNodes;
  /** Tables by type: `memory`, or huge pages such as `hugepages-2Mi`. */
  readonly tables: ReadonlyMap<string, MemoryTable>;
}

/** Memory of a target by NUMA node. */
export type MachineState = ReadonlyMap<number, NumaNodeState>;

/** Memory of one type that a container has on one or several NUMA nodes. */
export interface MemoryBlock {
  readonly nodes: NumaNodes;
  readonly type: string;
  readonly bytes: number;
}

/** Reserved bytes by NUMA node and type. */
export type SystemReserved = ReadonlyMap<number, ReadonlyMap<string, number>>;

/** Creates the state of a machine without containers. @throws CodedError failed_precondition if more memory is reserved on a node than it
 *  has. */
export function idleMachine(topology: MemoryTopology, reserved: SystemReserved): MachineState {
  return new Map(
    topology.map(({ id, bytes, hugePages }) => {
      const table = (type: string, total: number, pages: number): [string, MemoryTable] => {
        const systemReserved = reserved.get(id)?.get(type) ?? 0;
        const allocatable = total - systemReserved - pages;
        if (allocatable < 0)
          throw new CodedError(
            "failed_precondition",
            `[memorymanager] reservedMemory reserves more of type "${type}" on NUMA node ${id} than it has: reserve less`,
          );
        return [type, { total, systemReserved, allocatable, reserved: 0, free: allocatable }];
      };
      const inPages = [...hugePages.values()].reduce((sum, size) => sum + size, 0);
      const ofPages = [...hugePages].map(([type, total]) => table(type, total, 0));
      const tables = new Map([table("memory", bytes, inPages), ...ofPages]);
      return [id, { assignments: 0, group: numaNodes([id]), tables }];
    }),
  );
}

/** Reserves memory for a block, node by node. @param bytes required in addition to the memory that the block takes over. */
export function reserveBlock(machine: MachineState, block: MemoryBlock, bytes: number): MachineState {
  return moveMemory(machine, { ...block, bytes }, 1);
}

/** Returns the state in which a block's memory is free again. */
export function releaseBlock(machine: MachineState, block: MemoryBlock): MachineState {
  return moveMemory(machine, block, -1);
}

function moveMemory(machine: MachineState, { nodes, type, bytes }: MemoryBlock, sign: 1 | -1): MachineState {
  const next = new Map(machine);
  let left = bytes;
  for (const id of idsOfNodes(nodes)) {
    const node = machine.get(id);
    if (!node) continue;
    const assignments = node.assignments + sign;
    const tables = new Map(node.tables);
    const table = tables.get(type);
    if (table) {
      const moved = Math.min(left, sign > 0 ? table.free : table.reserved);
      left -= moved;
      tables.set(type, { ...table, reserved: table.reserved + sign * moved, free: table.free - sign * moved });
    }
    const group = sign > 0 ? nodes : assignments === 0 ? numaNodes([id]) : node.group;
    next.set(id, { assignments, group, tables });
  }
  return next;
}

/** Sum over the nodes of a set. A type that a node does not have counts as 0. */
export function sumOver(
  machine: MachineState,
  nodes: NumaNodes,
  type: string,
  field: "allocatable" | "free" | "reserved",
): number {
  return idsOfNodes(nodes).reduce((sum, id) => sum + (machine.get(id)?.tables.get(type)?.[field] ?? 0), 0);
}
