import type { Logger } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { podFullName, podReference } from "../pod/reference.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { Sends } from "../state/signals.ts";
import { isStopped } from "../state/worker-phases.ts";
import type { StorageSignal } from "./storage-limits.ts";

/** Why a pod was evicted, as in metrics: its own limit, or an eviction signal such as `memory.available`. */
export type EvictionCause = StorageSignal | `${string}.${"available" | "inodesFree"}`;

export interface EvictionMeasures {
  evicted(signal: EvictionCause): void;
  /** Age of the observations that led to an eviction. */
  observationAge(signal: EvictionCause, ms: number): void;
}

export interface EvictDeps {
  readonly worker: Pick<Column<WorkerView>, "get">;
  /** Calls back when the worker of a pod has finished. */
  readonly onEnd: (hear: (uid: string) => void) => void;
  readonly signals: Sends<"terminatePod">;
  readonly events: EventSink;
  readonly measures: Pick<EvictionMeasures, "evicted">;
  readonly log: Logger;
}

/** Why a pod is evicted, and how. */
export interface EvictionRequest {
  /** The kubelet's message. */
  readonly message: string;
  /** Message of the condition DisruptionTarget; absent for a pod that exceeded its own limits. */
  readonly disruption?: string;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly graceSeconds: number;
  readonly signal: EvictionCause;
}

/** An evicted pod whose end is awaited. */
export interface EvictedPod {
  readonly pod: Pod;
  /** Absent for a pod that was evicted before and is still terminating. */
  readonly graceSeconds?: number;
}

/** Evicts a pod; its worker terminates it. Shortens the grace period of a pod that is terminating already; does nothing for a
 *  pod that was evicted before. @returns undefined for a pod that has ended. */
export type Evict = (pod: Pod, order: EvictionRequest) => EvictedPod | undefined;

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
    log.warn({ pod: podFullName(pod), uid, signal, why: message }, "evicting pod");
    events.event(podReference(pod), "Warning", reason, message, annotations);
    const eviction = { reason, message, ...(disruption !== undefined && { disruption }) };
    signals.terminatePod.send(uid, { graceSeconds, eviction });
    measures.evicted(signal);
    return { pod, graceSeconds };
  };
}
