import type { GuestSizes } from "../harness/state.ts";
import { type Entry, needIn } from "./score/lists.ts";

/** A guest that tests are run in. */
export interface GuestMachine {
  /** Tells it from the others. */
  readonly name: MachineName;
  /** What it is given beside what every guest is. */
  readonly sizes: Partial<GuestSizes>;
  readonly names: readonly string[];
}

/** `numa` has two sockets of four CPUs, each a NUMA node of 2 GiB, as tests of the memory manager reserve more than one; in `threads` two of
 *  them are a core. */
const machines = {
  plain: {},
  numa: { cpus: 8, numa: 2, threadsPerCore: 1, memoryMiB: 4096 },
  threads: { cpus: 8, numa: 2, threadsPerCore: 2, memoryMiB: 4096 },
} as const satisfies Readonly<Record<string, Partial<GuestSizes>>>;
type MachineName = keyof typeof machines;

/** Divides tests among guests, by what they need of a machine.
 *  @param entries the lists as they are committed. */
export function guestMachines(names: readonly string[], entries: readonly Entry[]): readonly GuestMachine[] {
  const ofNode = entries.filter(({ suite, list }) => suite === "e2e_node" && list === "guest");
  const machineFor = new Map(ofNode.map((entry) => [entry.name, machineOf(entry)]));
  const groups = Map.groupBy(names, (name) => machineFor.get(name) ?? "plain");
  return [...groups].map(([name, members]) => ({ name, sizes: machines[name], names: members }));
}

/** Tests of the CPU manager that need cgroup v2 look for processors later. */
function machineOf(entry: Entry): MachineName {
  const need = needIn(entry) ?? "";
  if (entry.note.includes("SMT disabled")) return "threads";
  const wide = ["NUMA nodes", "more processors"].includes(need) || entry.capability === "CPU and memory managers";
  return wide ? "numa" : "plain";
}
