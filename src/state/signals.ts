import type { WakeCause } from "../pipeline.ts";
import { createSignal } from "../lib/signal.ts";
import type { Ending } from "./pod-table.ts";

/** Reason for retrying pending resizes. */
export type ResizeTrigger =
  | "pod_updated"
  | "pod_resized"
  | "pods_added"
  | "pods_removed"
  | "pod_terminated"
  | "periodic_retry";

/** Signals of a node, created before the actors that send or receive them. A signal only announces a change: its subscribers read the
 *  new state from the columns. */
export type NodeSignals = ReturnType<typeof createSignals>;

// Maps over a type parameter, so that an editor finds and renames a signal in the actors that use it.
type Ends<S, K extends keyof S, End> = { readonly [N in K]: Pick<S[N], End & keyof S[N]> };

/** Senders of some signals. */
export type Sends<Name extends keyof NodeSignals> = Ends<NodeSignals, Name, "send">;
/** Subscriptions to some signals. */
export type Subscribes<Name extends keyof NodeSignals> = Ends<NodeSignals, Name, "subscribe">;

/** Creates all signals of a node, without subscribers. */
export function createSignals() {
  return {
    /** A pod's worker should sync its pod. */
    wakeWorker: createSignal<[uid: string, cause: WakeCause]>(),
    /** The runtime responds again, or Services have been listed for the first time: failed pods are retried at once. */
    retryFailedPods: createSignal(),
    /** A pod that should run is to be terminated. */
    terminatePod: createSignal<[uid: string, ending: Ending]>(),
    /** The Node's status may have changed. */
    nodeChanged: createSignal(),
    /** A static pod, a mirror pod, a worker's phase, the Node or the sources have changed. */
    mirrorsChanged: createSignal(),
    /** Pending resizes should be retried: the decision may be different now. */
    retryPendingResizes: createSignal<[trigger: ResizeTrigger]>(),
  };
}
