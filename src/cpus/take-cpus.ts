import type { CpuSet } from "../lib/cpu-set.ts";
import { type Cpu, type CpuLevel, type CpuTopology, cpusPer } from "./topology.ts";

/** How CPUs are chosen. */
export interface TakeOptions {
  /** Takes CPUs of a socket in the order of their IDs, which puts them on different cores where threads of a core are numbered apart. */
  readonly spreadAcrossCores: boolean;
  /** Prefers CPUs of one L3 cache. */
  readonly alignCaches: boolean;
}

/** CPUs that are being taken. */
interface Taking {
  readonly topology: CpuTopology;
  readonly options: TakeOptions;
  free: readonly Cpu[];
  /** Number of CPUs still to be taken. */
  needed: number;
  readonly taken: Set<number>;
}

/** Takes CPUs that are close to each other: whole NUMA nodes and sockets if the request is large enough, then whole cores, then single
 *  CPUs. Of equal parts, the one with the fewest free CPUs is taken, so that large parts stay free.
 *  @param available CPUs to choose from. @throws Error in the kubelet's words. (kubelet, cm/cpumanager/cpu_assignment.go)
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/ */
export function takeCpus(topology: CpuTopology, available: CpuSet, count: number, options: TakeOptions): CpuSet {
  const free = topology.cpus.filter(({ id }) => available.has(id));
  const taking: Taking = { topology, options, free, needed: count, taken: new Set() };
  if (count > free.length) {
    const [requested, left] = [`requested=${count}`, `available=${available.size}`];
    throw new Error(`not enough cpus available to satisfy request: ${requested}, ${left}`);
  }
  for (const step of steps(taking)) {
    if (taking.needed === 0) break;
    step();
  }
  if (taking.needed !== 0) throw new Error("failed to allocate cpus");
  return taking.taken;
}

function steps(taking: Taking): readonly (() => void)[] {
  const [outer, inner] = outerLevels(taking.topology);
  const whole = (levels: readonly CpuLevel[]) => () => takeWhole(taking, levels);
  const { spreadAcrossCores, alignCaches } = taking.options;
  return [
    whole([outer]),
    whole([outer, inner]),
    ...(alignCaches ? [() => takeCaches(taking)] : []),
    ...(spreadAcrossCores ? [] : [whole([outer, inner, "core"])]),
    () => takeSingle(taking),
  ];
}

/** NUMA nodes and sockets, the larger parts of the machine first. */
function outerLevels({ count }: CpuTopology): readonly ["numaNode", "socket"] | ["socket", "numaNode"] {
  return count.socket >= count.numaNode ? ["numaNode", "socket"] : ["socket", "numaNode"];
}

/** IDs of the parts of a level that have free CPUs: those with the fewest first, within parts of the levels above in the same order.
 *  @param levels from large to small. */
export function orderedParts(free: readonly Cpu[], levels: readonly CpuLevel[]): readonly number[] {
  return [...new Set(orderedGroups(free, free, levels).map(([id]) => id))];
}

function orderedGroups(
  all: readonly Cpu[],
  within: readonly Cpu[],
  [level, ...below]: readonly CpuLevel[],
): readonly (readonly [id: number, cpus: readonly Cpu[]])[] {
  if (level === undefined) return [];
  const size = new Map<number, number>();
  for (const cpu of all) size.set(cpu[level], (size.get(cpu[level]) ?? 0) + 1);
  const groups = [...Map.groupBy(within, (cpu) => cpu[level])].sort(
    ([a], [b]) => (size.get(a) ?? 0) - (size.get(b) ?? 0) || a - b,
  );
  return below.length === 0 ? groups : groups.flatMap(([, cpus]) => orderedGroups(all, cpus, below));
}

function take(taking: Taking, cpus: readonly Cpu[]): void {
  for (const { id } of cpus) taking.taken.add(id);
  taking.free = taking.free.filter(({ id }) => !taking.taken.has(id));
  taking.needed -= cpus.length;
}

/** Takes parts that are entirely free while at least one whole part is needed. @param levels the last one is taken. */
function takeWhole(taking: Taking, levels: readonly CpuLevel[]): void {
  const { topology } = taking;
  const level = levels.at(-1);
  if (level === undefined) return;
  for (const part of orderedParts(taking.free, levels)) {
    const cpus = topology.cpus.filter((cpu) => cpu[level] === part);
    const free = taking.free.filter((cpu) => cpu[level] === part).length;
    // As in the kubelet, sockets and cores are whole when they have the average number of free CPUs.
    const size = level === "socket" || level === "core" ? cpusPer(topology, level) : cpus.length;
    if (free === size && free === cpus.length && taking.needed >= free) take(taking, cpus);
  }
}

/** Takes whole L3 caches, and then a part of a cache for the rest of the request. */
function takeCaches(taking: Taking): void {
  const levels = [...nodeLevels(taking.topology), "cache"] as const;
  for (const cache of orderedParts(taking.free, levels)) {
    if (taking.needed >= cpusPer(taking.topology, "cache")) takeWhole(taking, levels);
    if (taking.needed > 0) takePartOfCache(taking, cache);
    if (taking.needed === 0) return;
  }
}

/** Topology levels from the outermost down to NUMA nodes. */
export function nodeLevels(topology: CpuTopology): readonly CpuLevel[] {
  return outerLevels(topology)[0] === "numaNode" ? ["numaNode"] : ["socket", "numaNode"];
}

function takePartOfCache(taking: Taking, cache: number): void {
  const { needed, topology } = taking;
  const threads = cpusPer(topology, "core");
  const free = taking.free.filter((cpu) => cpu.cache === cache);
  const cores = [...new Set(free.map(({ core }) => core))].sort((a, b) => a - b).slice(0, Math.ceil(needed / threads));
  const cpus = free.filter(({ core }) => cores.includes(core)).sort((a, b) => a.id - b.id);
  // An odd request needs one thread of its last core.
  if (needed % 2 !== 0 && threads > 1 && cpus.length > needed) cpus.pop();
  if (cpus.length === needed) take(taking, cpus);
}

function takeSingle(taking: Taking): void {
  const [outer, inner] = outerLevels(taking.topology);
  const level = taking.options.spreadAcrossCores ? "socket" : "core";
  const levels: readonly CpuLevel[] =
    level === "core" ? [outer, inner, "core"] : outer === "socket" ? ["socket"] : ["numaNode", "socket"];
  const ordered = orderedParts(taking.free, levels).flatMap((part) =>
    taking.free.filter((cpu) => cpu[level] === part).sort((a, b) => a.id - b.id),
  );
  take(taking, ordered.slice(0, taking.needed));
}
