import type { Clock } from "../lib/clock.ts";
import type { EventSink, RuntimePod, StatusReader } from "../pipeline.ts";
import type { DaemonSetDecision } from "../pod/daemon-sets.ts";
import { isPlaceholder, placeholderMessage, placeholderReason } from "../pod/placeholder.ts";
import { podReference } from "../pod/reference.ts";
import type { DesiredPod } from "../roles.ts";
import type { PassResult } from "./pod-worker.ts";

export interface PlaceholderDeps {
  /** Decides whether the node runs a DaemonSet's pod or shows a placeholder for it. */
  readonly daemonSetDecision: (pod: DesiredPod, seen: RuntimePod | undefined) => DaemonSetDecision;
  /** Deletes a pod in the API server with its own grace period; its DaemonSet creates another. */
  readonly deletePod: (pod: DesiredPod["metadata"], signal: AbortSignal) => Promise<void>;
  readonly statuses: StatusReader;
  readonly events: EventSink;
  readonly syncMs: number;
  readonly clock: Clock;
}

/** Retry delay for a deletion that the watch has not shown, milliseconds. */
const deletionRetryDelayMs = 10_000;

const replacedMessage =
  "the node's choice of DaemonSets (nodes[].daemonSets) has changed: deleting the pod; its DaemonSet creates another";

/** Handles a pod of a DaemonSet that the node excludes: nothing is created, and one event explains why. If the decision has changed since
 *  the pod was created, the pod is deleted, since its status cannot go backwards. @param show reports the pod's status.
 *  @returns undefined for a pod that the node runs. */
export async function syncPlaceholder(
  { daemonSetDecision, deletePod, statuses, events, clock, syncMs }: PlaceholderDeps,
  pod: DesiredPod,
  { observed, show }: { readonly observed: RuntimePod; readonly show: () => void },
  signal: AbortSignal,
): Promise<PassResult | undefined> {
  const { kind, isFinal } = daemonSetDecision(pod, observed);
  if (kind === "pod" && isFinal) return undefined;
  const isNew = !isPlaceholder(statuses.get(pod.metadata.uid) ?? pod.status);
  show();
  if (!isFinal) {
    events.event(podReference(pod), "Normal", "DaemonSetsChanged", replacedMessage);
    await deletePod(pod.metadata, signal);
    return { terminal: false, requeueAfterMs: deletionRetryDelayMs * clock.jitter(1, 1.5) };
  }
  if (isNew) events.event(podReference(pod), "Normal", placeholderReason, placeholderMessage);
  return { terminal: false, requeueAfterMs: syncMs * clock.jitter(1, 1.5) };
}
