import type { Clock } from "../lib/clock.ts";
import type { ReachableState } from "../node/conditions.ts";
import type { NodePressure, SourceName } from "../pipeline.ts";
import { createValue, createSourceMilestone } from "../state/values.ts";
import { createPodTable } from "../state/pod-table.ts";

/** Creates the state of a node: passive, created before its actors. Each part has a reader and a writer; kubelet/wiring.ts says which
 *  actor gets which. @param sources pod sources of the node. */
export function createNodeState(clock: Clock, sources: readonly SourceName[]) {
  const { privateColumn, onEnd, ...columns } = createPodTable(clock);
  const state = {
    ...columns,
    /** Sources that have reported. */
    sourcesReady: createSourceMilestone(sources),
    /** Sources whose first report has been processed. */
    sourcesSynced: createSourceMilestone(sources),
    /** Pressure conditions of the node. */
    pressure: createValue<NodePressure>(),
    /** Result of the self-test from the API server to the kubelet API. */
    reachable: createValue<ReachableState>(),
    /** The target is about to shut down. */
    shuttingDown: createValue<true>(),
    /** Attachable volumes in use, as in Node.status.volumesInUse; undefined until volumes of an earlier process have been recovered. */
    volumesInUse: createValue<readonly string[]>(),
  };
  return { state, privateColumn, onEnd };
}

export type NodeState = ReturnType<typeof createNodeState>["state"];
