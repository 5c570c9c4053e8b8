import type { Logger } from "../lib/log.ts";
import type { EvictionMeasures, EvictionSignal } from "../measures.ts";
import type { Pod } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { fullName, podReference } from "../pod/reference.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/rows.ts";
import type { Sends } from "../state/signals.ts";
import { isStopped } from "../state/worker-ends.ts";

export interface EvictDeps {
  readonly worker: Pick<Column<WorkerView>, "get">;
  /** Calls back when the work on a pod is over. */
  readonly onEnd: (hear: (uid: string) => void) => void;
  readonly signals: Sends<"end">;
  readonly events: EventSink;
  readonly measures: Pick<EvictionMeasures, "evicted">;
  readonly log: Logger;
}

/** Why a pod is evicted, and how. */
export interface EvictionOrder {
  /** In the kubelet's words. */
  readonly message: string;
  /** Message of the condition DisruptionTarget; absent for a pod that broke its own limits. */
  readonly disruption?: string;
  /** Of the event. */
  readonly annotations?: Readonly<Record<string, string>>;
  readonly graceSeconds: number;
  readonly signal: EvictionSignal;
}

/** A pod that is waited for. */
export interface Evicted {
  readonly pod: Pod;
  /** Absent where it was evicted before, and is still ending. */
  readonly graceSeconds?: number;
}

/** Evicts a pod; its worker ends it. One that ends already has less time for it from now on; one that was evicted before is left to its
 *  end. @returns undefined for a pod that has ended. */
export type Evict = (pod: Pod, order: EvictionOrder) => Evicted | undefined;

const reason = "Evicted";

/** @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ */
export function createEvict({ worker, onEnd, signals, events, measures, log }: EvictDeps): Evict {
  const evicted = new Set<string>();
  onEnd((uid) => evicted.delete(uid));
  return (pod, { message, disruption, annotations, graceSeconds, signal }) => {
    const { uid } = pod.metadata;
    if (isStopped(worker.get(uid)?.phase)) return undefined;
    if (evicted.has(uid)) return { pod };
    evicted.add(uid);
    log.warn({ pod: fullName(pod), uid, signal, why: message }, "pod is evicted");
    events.event(podReference(pod), "Warning", reason, message, annotations);
    const eviction = { reason, message, ...(disruption !== undefined && { disruption }) };
    signals.end.send(uid, { graceSeconds, eviction });
    measures.evicted(signal);
    return { pod, graceSeconds };
  };
}
