import { boundedLines } from "../lib/bounded-text.ts";
import { CodedError } from "../lib/errors.ts";
import { maxNumaNode } from "../lib/numa-nodes.ts";
import { canonicalBytes } from "../pod/quantity.ts";
import { script } from "../seams/command.ts";
import type { Host } from "../seams/host.ts";

/** Memory of a NUMA node, in bytes. */
export interface NumaMemory {
  readonly id: number;
  /** Total memory, including huge pages. */
  readonly bytes: number;
  /** Memory in huge pages by resource name, such as `hugepages-2Mi`; including sizes without any pages. */
  readonly hugePages: ReadonlyMap<string, number>;
}

/** The NUMA nodes of a target, in ascending order. */
export type MemoryTopology = readonly NumaMemory[];

/** Maximum number of NUMA nodes. All sets of nodes are considered for each pod, so a target must not be able to report too many. */
const maxNodes = 8;
/** Maximum size of the output, bytes: enough for 1,024 nodes with eight sizes of huge pages. */
const maxBytes = 2 ** 20;
/** Prints the files that describe the memory of NUMA nodes, each line after its path. */
const readScript = `cd /sys/devices/system/node || exit 0
grep -sH MemTotal: node[0-9]*/meminfo
grep -sH '' node[0-9]*/hugepages/hugepages-*/nr_hugepages
exit 0`;

/** Reads the memory of the target's NUMA nodes, in one round trip. @throws CodedError failed_precondition if the target reports no
 *  NUMA nodes, or too many; unavailable. */
export async function readMemoryTopology(
  host: Pick<Host, "run" | "budget">,
  signal: AbortSignal,
): Promise<MemoryTopology> {
  const { stdout } = await host.run(script(readScript), { maxOutputBytes: maxBytes, signal });
  const topology = parseMemoryTopology(boundedLines(stdout, host.budget));
  if (!topology.some(({ bytes }) => bytes > 0))
    throw new CodedError("failed_precondition", "the machine does not report the memory of its NUMA nodes");
  if (topology.length > maxNodes)
    throw new CodedError(
      "failed_precondition",
      `the memory manager supports up to ${maxNodes} NUMA nodes, but the machine has ${topology.length}`,
    );
  return topology;
}

/** Parses lines `path:text` of files below /sys/devices/system/node. */
export function parseMemoryTopology(lines: readonly string[]): MemoryTopology {
  const nodes = new Map<number, { bytes: number; readonly hugePages: Map<string, number> }>();
  const nodeOf = (text: string | undefined) => {
    const id = Number(text);
    if (id > maxNumaNode) return undefined;
    const node = nodes.get(id) ?? { bytes: 0, hugePages: new Map<string, number>() };
    nodes.set(id, node);
    return node;
  };
  for (const line of lines) {
    const memory = /^node(\d{1,5})\/meminfo:.*\bMemTotal:\s*(\d{1,12}) kB/.exec(line);
    const ofMemory = memory && nodeOf(memory[1]);
    if (ofMemory) ofMemory.bytes = Number(memory[2]) * 1024;
    const pages = /^node(\d{1,5})\/hugepages\/hugepages-(\d{1,9})kB\/nr_hugepages:(\d{1,9})$/.exec(line.trim());
    const ofPages = pages && nodeOf(pages[1]);
    if (!ofPages) continue;
    const size = Number(pages[2]) * 1024;
    ofPages.hugePages.set(`hugepages-${canonicalBytes(size, 1024)}`, Number(pages[3]) * size);
  }
  return [...nodes].sort(([a], [b]) => a - b).map(([id, node]) => ({ id, ...node }));
}
