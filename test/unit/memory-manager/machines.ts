import type { NumaMemory } from "../../../src/memory-manager/numa-memory.ts";
import { type MachineState, idleMachine } from "../../../src/memory-manager/machine-state.ts";
import type { MemoryState } from "../../../src/memory-manager/static-policy.ts";
import type { Container, Pod } from "../../../src/objects.ts";

export const gib = 2 ** 30;

/** A node with this much memory, in GiB. @param pages GiB of it in huge pages of 2 MiB; undefined if the kernel has none. */
export function node(id: number, size: number, pages?: number): NumaMemory {
  return { id, bytes: size * gib, hugePages: new Map(pages === undefined ? [] : [["hugepages-2Mi", pages * gib]]) };
}

/** A machine of nodes with so many GiB each; one GiB of the first is reserved. */
export function machine(...sizes: readonly number[]): MachineState {
  const topology = sizes.map((size, id) => node(id, size));
  return idleMachine(topology, new Map([[0, new Map([["memory", gib]])]]));
}

export function idle(...sizes: readonly number[]): MemoryState {
  return { machine: machine(...sizes), assigned: new Map() };
}

/** A container that requests as much as it may use. */
export function asking(name: string, memory: string, more: Partial<Container> = {}): Container {
  const amounts = { cpu: "100m", memory };
  return { name, image: "i", resources: { requests: amounts, limits: amounts }, ...more };
}

export function podOf(uid: string, containers: readonly Container[], initContainers: readonly Container[] = []): Pod {
  return {
    metadata: { uid, name: uid, namespace: "default" },
    spec: { containers: [...containers], initContainers: [...initContainers] },
  };
}
