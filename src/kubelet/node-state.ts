import type { Clock } from "../lib/clock.ts";
import type { ReachableVerdict } from "../node/conditions.ts";
import type { NodePressure, SourceName } from "../pipeline.ts";
import type { PodResources } from "../pod/resize.ts";
import type { Allocation } from "../resources/allocations.ts";
import { createCell, createSourceMarks } from "../state/cells.ts";
import { createPodTable } from "../state/pod-table.ts";
import type { ColumnPair, ColumnWriter } from "../state/rows.ts";
import type { Held } from "../status/delivery.ts";

/** State of a node: passive, made before its actors. Each part has a reader and a writer; kubelet/wiring.ts says which actor gets
 *  which. @param sources that the node has. */
export function createNodeState(clock: Clock, sources: readonly SourceName[]) {
  const { field, onEnd, ...columns } = createPodTable(clock);
  const state = {
    ...columns,
    /** Resources that a pod has been given. */
    allocation: pairOf(field<Allocation>()),
    /** Pods whose wish for other resources waits to be weighed. */
    pending: pairOf(field<true>()),
    /** Resources that a pod asked for last. */
    wishes: pairOf(field<PodResources>()),
    /** Status on its way to the API server. */
    held: pairOf(field<Held>()),
    /** Pods on which a pass acted without seeing the outcome. */
    unseen: pairOf(field<true>()),
    /** Sources that have spoken. */
    spoken: createSourceMarks(sources),
    /** Sources whose first words were taken in, or refused. */
    takenIn: createSourceMarks(sources),
    /** What the node runs short of. */
    pressure: createCell<NodePressure>(),
    /** Way from the API server to the kubelet API. */
    reachable: createCell<ReachableVerdict>(),
    /** The target is about to shut down. */
    goingDown: createCell<true>(),
    /** Attached volumes in use, by the cluster's names; undefined while it is not known what an earlier process left. */
    inUse: createCell<readonly string[]>(),
  };
  return { state, onEnd };
}

export type NodeState = ReturnType<typeof createNodeState>["state"];

function pairOf<T>(writer: ColumnWriter<T>): ColumnPair<T> {
  return { reader: writer, writer };
}
