import { boundedLines } from "../lib/bounded-text.ts";
import { type NumaNodes, countNodes, idsOfNodes, isNarrower, maxNumaNode, numaNodes } from "../lib/numa-nodes.ts";
import { script } from "../seams/command.ts";
import type { Host } from "../seams/host.ts";

/** The NUMA nodes of a target. */
export interface NumaTopology {
  /** Numbers of the nodes, in ascending order. */
  readonly ids: readonly number[];
  /** Distances in the kernel's units, by the numbers of both nodes; undefined if the target does not report all of them. */
  readonly distances: ReadonlyMap<number, ReadonlyMap<number, number>> | undefined;
}

/** Maximum size of the kernel's files, bytes. */
const maxBytes = 2 ** 20;
/** Prints the distances of each node, and the socket of each CPU for kernels without NUMA nodes, each line after its path. */
const readScript = `cd /sys/devices/system || exit 1
grep -sH '' node/node[0-9]*/distance cpu/cpu[0-9]*/topology/physical_package_id
ls -d node/node[0-9]* 2>/dev/null
exit 0`;

/** Reads the target's NUMA nodes, in one round trip. @throws unavailable. */
export async function readNumaTopology(host: Pick<Host, "run" | "budget">, signal: AbortSignal): Promise<NumaTopology> {
  const { stdout } = await host.run(script(readScript), { maxOutputBytes: maxBytes, signal });
  return parseNumaTopology(boundedLines(stdout, host.budget));
}

/** Parses paths below /sys/devices/system, with the text of files behind a colon. On a kernel without NUMA nodes each socket counts as one,
 *  as for the kubelet. */
export function parseNumaTopology(lines: readonly string[]): NumaTopology {
  const [nodes, sockets] = [new Set<number>(), new Set<number>()];
  const rows = new Map<number, readonly number[]>();
  for (const line of lines) {
    const node = /^node\/node(\d{1,2})(?:$|\/distance:([\d ]*)$)/.exec(line);
    const socket = /^cpu\/cpu\d{1,5}\/topology\/physical_package_id:(\d{1,2})$/.exec(line)?.[1];
    if (socket !== undefined) sockets.add(Number(socket));
    if (node?.[1] === undefined || Number(node[1]) > maxNumaNode) continue;
    nodes.add(Number(node[1]));
    if (node[2] !== undefined) rows.set(Number(node[1]), node[2].trim().split(" ").map(Number));
  }
  const ids = [...(nodes.size > 0 ? nodes : sockets)].sort((a, b) => a - b);
  const complete = nodes.size > 0 && ids.every((id) => rows.get(id)?.length === ids.length);
  if (!complete) return { ids, distances: undefined };
  // Each row lists the distance to every node, ordered by node number.
  const distancesOf = (id: number) => new Map((rows.get(id) ?? []).map((distance, at) => [ids[at] ?? at, distance]));
  return { ids, distances: new Map(ids.map((id) => [id, distancesOf(id)])) };
}

/** The set of all nodes. */
export function allNodes({ ids }: NumaTopology): NumaNodes {
  return numaNodes(ids);
}

/** Compares two sets of nodes. @returns true if the first one is the better choice. */
export type IsBetter = (nodes: NumaNodes, than: NumaNodes) => boolean;

/** Prefers fewer nodes; of equally many, those that are closer to each other on average, then the lower numbers.
 *  (kubelet, cm/topologymanager/numa_info.go) */
export function isCloser({ distances }: NumaTopology): IsBetter {
  const sum = (nodes: NumaNodes) => {
    const ids = idsOfNodes(nodes);
    return ids.flatMap((from) => ids.map((to) => distances?.get(from)?.get(to) ?? 0)).reduce((a, b) => a + b, 0);
  };
  return (nodes, than) => {
    if (countNodes(nodes) !== countNodes(than)) return isNarrower(nodes, than);
    const [own, other] = [sum(nodes), sum(than)];
    return own === other ? nodes < than : own < other;
  };
}
