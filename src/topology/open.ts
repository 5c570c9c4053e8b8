import type { Host } from "../seams/host.ts";
import { TargetError } from "../seams/provider.ts";
import type { Alignment } from "./aligned-allocation.ts";
import { readNumaTopology } from "./numa.ts";

/** Maximum number of NUMA nodes of a machine unless configured otherwise: hints are computed for every set of nodes. */
export const defaultMaxNodes = 8;

export interface TopologySettings extends Omit<Alignment, "numa"> {
  /** max-allowable-numa-nodes */
  readonly maxNodes: number;
}

/** Describes how resources are aligned, in a sentence. */
export function describeNuma({ policy, scope, numa }: Alignment): string {
  return `${policy} for each ${scope}, NUMA nodes ${numa.ids.join(",") || "none"}`;
}

/** Reads the target's NUMA nodes, and checks that the topology manager can work with them.
 *  @throws TargetError in the kubelet's words; unavailable. (kubelet, cm/topologymanager/topology_manager.go) */
export async function openAlignment(
  { maxNodes, ...settings }: TopologySettings,
  host: Pick<Host, "run" | "budget">,
  signal: AbortSignal,
): Promise<Alignment> {
  const numa = await readNumaTopology(host, signal);
  const refusal = (message: string) => new TargetError("TopologyManager", "failed_precondition", message);
  if (settings.preferClosest && !numa.distances)
    throw refusal("cannot discover NUMA topology: error getting NUMA distances from cadvisor");
  if (numa.ids.length > maxNodes) throw refusal(`unsupported on machines with more than ${maxNodes} NUMA Nodes`);
  return { ...settings, numa };
}
