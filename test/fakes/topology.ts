import type { ResourceManager } from "../../src/resource-manager.ts";
import { createTopologyManager, type TopologyManager } from "../../src/topology/manager.ts";
import { fakeClock } from "./clock.ts";
import { unmeasured } from "./measures.ts";

/** A topology manager with policy none: managers allocate from any NUMA nodes. */
export function unalignedTopology(
  ...managers: readonly Pick<ResourceManager, "allocate" | "podAllocator">[]
): TopologyManager {
  return createTopologyManager({ alignment: undefined, managers, measures: unmeasured.topology, clock: fakeClock() });
}
