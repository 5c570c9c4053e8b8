import type { Clock } from "../lib/clock.ts";
import type { EventSink, RuntimePod, StatusReader } from "../pipeline.ts";
import type { Standing } from "../pod/daemon-sets.ts";
import { isPlaceholder, placeholderMessage, placeholderReason } from "../pod/placeholder.ts";
import { podReference } from "../pod/reference.ts";
import type { AskedPod } from "../roles.ts";
import type { PassResult } from "./pod-worker.ts";

export interface PlaceholderDeps {
  /** Says whether the node runs a pod, or shows a placeholder for it. */
  readonly standingOf: (pod: AskedPod, seen: RuntimePod | undefined) => Standing;
  /** Has the API server delete a pod with its own grace period; its DaemonSet makes another. */
  readonly deletePod: (pod: AskedPod["metadata"], signal: AbortSignal) => Promise<void>;
  readonly status: StatusReader;
  readonly events: EventSink;
  readonly syncMs: number;
  readonly clock: Clock;
}

/** Time for a deletion that was asked for to be heard of, milliseconds. */
const deletionMs = 10_000;

const replacedMessage =
  "the node's choice of DaemonSets (nodes[].daemonSets) has changed: the pod is deleted, and its DaemonSet makes another";

/** The pass over a pod of a DaemonSet that the node leaves out: nothing is made, and one event explains. A pod that is to be what it is not
 *  is deleted: a status does not go backwards. @param show reports the pod's status.
 *  @returns undefined for a pod that the node runs. */
export async function asPlaceholder(
  { standingOf, deletePod, status, events, clock, syncMs }: PlaceholderDeps,
  pod: AskedPod,
  { observed, show }: { readonly observed: RuntimePod; readonly show: () => void },
  signal: AbortSignal,
): Promise<PassResult | undefined> {
  const { is, stays } = standingOf(pod, observed);
  if (is === "pod" && stays) return undefined;
  const isNew = !isPlaceholder(status.get(pod.metadata.uid) ?? pod.status);
  show();
  if (!stays) {
    events.event(podReference(pod), "Normal", "DaemonSetsChanged", replacedMessage);
    await deletePod(pod.metadata, signal);
    return { terminal: false, againMs: deletionMs * clock.jitter(1, 1.5) };
  }
  if (isNew) events.event(podReference(pod), "Normal", placeholderReason, placeholderMessage);
  return { terminal: false, againMs: syncMs * clock.jitter(1, 1.5) };
}
