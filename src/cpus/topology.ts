import { boundedLines } from "../lib/bounded-text.ts";
import { type CpuSet, parseCpuList } from "../lib/cpu-set.ts";
import { CodedError } from "../lib/errors.ts";
import { script } from "../seams/command.ts";
import type { Host } from "../seams/host.ts";

/** An online CPU, and its location in the machine. IDs are the kernel's unless stated otherwise. */
export interface Cpu {
  readonly id: number;
  /** The physical core: the lowest ID of its CPUs. */
  readonly core: number;
  readonly socket: number;
  readonly numaNode: number;
  /** The L3 cache, if only some cores of the NUMA node share it; otherwise the socket. */
  readonly cache: number;
}

/** Parts of a machine that group CPUs. */
export type CpuLevel = "numaNode" | "socket" | "cache" | "core";

/** The online CPUs of a target. */
export interface CpuTopology {
  readonly cpus: readonly Cpu[];
  readonly ids: CpuSet;
  /** Number of different NUMA nodes, sockets, caches and cores. */
  readonly count: Readonly<Record<CpuLevel, number>>;
}

/** Builds a topology of CPUs. */
export function topologyOf(cpus: readonly Cpu[]): CpuTopology {
  const count = (level: CpuLevel) => new Set(cpus.map((cpu) => cpu[level])).size;
  return {
    cpus,
    ids: new Set(cpus.map(({ id }) => id)),
    count: { numaNode: count("numaNode"), socket: count("socket"), cache: count("cache"), core: count("core") },
  };
}

/** Average number of CPUs per part of the machine, rounded down as in the kubelet. */
export function cpusPer({ cpus, count }: CpuTopology, level: CpuLevel): number {
  return count[level] === 0 ? 0 : Math.trunc(cpus.length / count[level]);
}

/** True if all these CPUs share an L3 cache. */
export function sharesCache({ cpus }: CpuTopology, ids: CpuSet): boolean {
  return new Set(cpus.filter(({ id }) => ids.has(id)).map(({ cache }) => cache)).size <= 1;
}

const system = "/sys/devices/system";
/** Maximum size of the kernel's files for 8,192 CPUs, bytes. */
const maxBytes = 16 * 2 ** 20;
/** Prints the files that describe CPUs, each line after its path. Files that a kernel does not have are skipped. */
const readScript = `cd ${system} || exit 1
grep -sH '' cpu/online node/node*/cpulist cpu/cpu[0-9]*/topology/core_id cpu/cpu[0-9]*/topology/physical_package_id \
  cpu/cpu[0-9]*/cache/index*/id cpu/cpu[0-9]*/cache/index*/level cpu/cpu[0-9]*/cache/index*/shared_cpu_list
exit 0`;

/** Reads the target's CPU topology, in one round trip. @throws CodedError failed_precondition if the target reports no CPUs;
 *  unavailable. */
export async function readTopology(host: Pick<Host, "run" | "budget">, signal: AbortSignal): Promise<CpuTopology> {
  const { stdout } = await host.run(script(readScript), { maxOutputBytes: maxBytes, signal });
  const topology = parseTopology(boundedLines(stdout, host.budget));
  if (topology.cpus.length === 0) throw new CodedError("failed_precondition", "could not detect number of cpus");
  return topology;
}

/** Parses lines `path:text` of files below /sys/devices/system, as cAdvisor does. */
export function parseTopology(lines: readonly string[]): CpuTopology {
  const files = new Map(
    lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)] as const),
  );
  const numbers = (path: string) => parseCpuList(files.get(path) ?? "");
  const integer = (path: string) => {
    const text = files.get(path)?.trim() ?? "";
    return /^-?\d{1,9}$/.test(text) ? Number(text) : undefined;
  };
  const nodeOf = numaNodesByCpu(files, numbers);
  const online = numbers("cpu/online");
  const found: Omit<Cpu, "core" | "cache">[] = [];
  const coreIds = new Map<number, string>();
  for (const path of files.keys()) {
    const id = Number(/^cpu\/cpu(\d{1,5})\/topology\/core_id$/.exec(path)?.[1] ?? -1);
    const [coreId, socket] = [integer(path), integer(`cpu/cpu${id}/topology/physical_package_id`)];
    if (id < 0 || coreId === undefined || socket === undefined || (online?.size && !online.has(id))) continue;
    const numaNode = nodeOf ? nodeOf.get(id) : socket;
    if (numaNode === undefined) continue;
    found.push({ id, socket, numaNode });
    coreIds.set(id, `${numaNode} ${socket} ${coreId}`);
  }
  found.sort((a, b) => a.id - b.id);
  const cores = Map.groupBy(found, ({ id }) => coreIds.get(id));
  const cpus = [...cores.values()].flatMap((threads) => {
    const [first] = threads;
    if (!first) return [];
    const coresOfNode = new Set(
      found.filter(({ numaNode }) => numaNode === first.numaNode).map(({ id }) => coreIds.get(id)),
    ).size;
    const cache = partialCache(files, first.id, coresOfNode * threads.length) ?? first.socket;
    return threads.map((cpu): Cpu => ({ ...cpu, core: first.id, cache }));
  });
  return topologyOf(cpus.sort((a, b) => a.id - b.id));
}

/** NUMA node by CPU; undefined for a kernel without NUMA nodes. */
function numaNodesByCpu(
  files: ReadonlyMap<string, string>,
  numbers: (path: string) => CpuSet | undefined,
): ReadonlyMap<number, number> | undefined {
  const nodes = [...files.keys()].flatMap((path) => {
    const node = /^node\/node(\d{1,5})\/cpulist$/.exec(path)?.[1];
    return node === undefined ? [] : [[Number(node), numbers(path) ?? []] as const];
  });
  if (nodes.length === 0) return undefined;
  return new Map(nodes.flatMap(([node, cpus]) => [...cpus].map((cpu) => [cpu, node] as const)));
}

/** Highest index in a CPU's list of caches that is examined. */
const maxCacheIndex = 9;

/** ID of the first cache above level 2 that a CPU shares with only some CPUs of its NUMA node; undefined if there is none.
 *  @param nodeCpus number of CPUs of the NUMA node. */
function partialCache(files: ReadonlyMap<string, string>, cpu: number, nodeCpus: number): number | undefined {
  for (let index = 0; index <= maxCacheIndex; index += 1) {
    const path = `cpu/cpu${cpu}/cache/index${index}`;
    const [id, level] = ["id", "level"].map((name) => files.get(`${path}/${name}`)?.trim() ?? "");
    if (!/^\d{1,9}$/.test(id ?? "") || !(Number(level) > 2)) continue;
    const shared = parseCpuList(files.get(`${path}/shared_cpu_list`) ?? "");
    if (shared && shared.size !== nodeCpus) return Number(id);
  }
  return undefined;
}
