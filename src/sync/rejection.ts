import type { Pod } from "../objects.ts";
import type { EventSink, Rejection } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import { PodRejectedError } from "../pod/rejected.ts";
import type { PassResult } from "./pod-worker.ts";

export interface RejectionDeps {
  readonly events: EventSink;
  /** Called with the reason for each pod that is rejected during a sync pass. */
  readonly onRejected: (reason: string) => void;
}

/** Runs a sync pass, which may find that the node cannot run the pod: the pod then fails permanently, like one that is not admitted.
 *  @param fail reports the pod as Failed. @see https://kubernetes.io/docs/concepts/storage/storage-limits/ */
export async function handleRejection(
  { events, onRejected }: RejectionDeps,
  pod: Pod,
  { run, fail }: { run(signal: AbortSignal): Promise<PassResult>; fail(why: Rejection): void },
  signal: AbortSignal,
): Promise<PassResult> {
  try {
    return await run(signal);
  } catch (error) {
    if (!(error instanceof PodRejectedError)) throw error;
    const { reason, message } = error.rejection;
    events.event(podReference(pod), "Warning", reason, message);
    onRejected(reason);
    const eviction = { reason, message: `Pod was rejected: ${message}` };
    fail(eviction);
    return { terminal: true, requeueAfterMs: 0, eviction };
  }
}
