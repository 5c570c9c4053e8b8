import { idsOfNodes } from "../lib/numa-nodes.ts";
import { wholePod } from "../pod/pinned-resources.ts";
import { type MachineState, type MemoryTable, reserveBlock, sumOver } from "./machine-state.ts";
import type { SavedMemory } from "./state-file.ts";
import type { MemoryState } from "./static-policy.ts";

/** A state, and the file that it was read from. */
export type ReadMemory = SavedMemory & { readonly file: string };

/** Checks that a state was written with this policy. @throws Error in the kubelet's words. */
export function checkPolicy({ policy, file }: Pick<ReadMemory, "policy" | "file">, configured: string): void {
  if (policy === configured) return;
  throw new Error(
    `could not restore state from checkpoint: [memorymanager] configured policy "${configured}" differs from state checkpoint policy "${policy}", please drain this node and delete the memory manager checkpoint file "${file}" before restarting Kubelet`,
  );
}

/** Checks that a state fits the machine and its reservations. @param idle the machine without containers.
 *  @returns the state to continue with. @throws Error in the kubelet's words. (kubelet, cm/memorymanager/policy_static.go) */
export function restoredState(idle: MachineState, saved: ReadMemory): MemoryState {
  checkPolicy(saved, "Static");
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
