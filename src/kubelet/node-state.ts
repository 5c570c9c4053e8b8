import type { Clock } from "../lib/clock.ts";
import type { ReachableVerdict } from "../node/conditions.ts";
import type { NodePressure, SourceName } from "../pipeline.ts";
import type { PodResources } from "../pod/resize.ts";
import type { Allocation } from "../resources/allocations.ts";
import { createCell, createSourceMarks } from "../state/cells.ts";
import { createPodTable } from "../state/pod-table.ts";
import type { ColumnPair, ColumnWriter } from "../state/rows.ts";
import type { Held } from "../status/delivery.ts";

/** Creates the state of a node: passive, created before its actors. Each part has a reader and a writer; kubelet/wiring.ts says which
 *  actor gets which. @param sources pod sources of the node. */
export function createNodeState(clock: Clock, sources: readonly SourceName[]) {
  const { field, onEnd, ...columns } = createPodTable(clock);
  const state = {
    ...columns,
    /** Allocated and actuated resources of a pod. */
    allocation: pairOf(field<Allocation>()),
    /** Pods with a resize that has not been decided, or that is deferred. */
    pending: pairOf(field<true>()),
    /** Last requested resources of a pod. */
    wishes: pairOf(field<PodResources>()),
    /** Status waiting to be written to the API server. */
    held: pairOf(field<Held>()),
    /** Pods that a pass has changed without observing the outcome. */
    unseen: pairOf(field<true>()),
    /** Sources that have reported. */
    spoken: createSourceMarks(sources),
    /** Sources whose first report has been processed. */
    takenIn: createSourceMarks(sources),
    /** Pressure conditions of the node. */
    pressure: createCell<NodePressure>(),
    /** Result of the self-test from the API server to the kubelet API. */
    reachable: createCell<ReachableVerdict>(),
    /** The target is about to shut down. */
    goingDown: createCell<true>(),
    /** Attachable volumes in use, as in Node.status.volumesInUse; undefined until volumes of an earlier process have been recovered. */
    inUse: createCell<readonly string[]>(),
  };
  return { state, onEnd };
}

export type NodeState = ReturnType<typeof createNodeState>["state"];

function pairOf<T>(writer: ColumnWriter<T>): ColumnPair<T> {
  return { reader: writer, writer };
}
