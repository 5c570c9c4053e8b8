import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, Rejection, StatusReader } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import type { PassResult } from "./pod-worker.ts";

const overdue: Rejection = {
  reason: "DeadlineExceeded",
  message: "Pod was active on the node longer than the specified deadline",
};

export interface DeadlineDeps {
  readonly status: StatusReader;
  readonly events: EventSink;
  readonly clock: Clock;
}

/** Makes a pass over a pod within the pod's active deadline: a pass that lasts longer is cut off, and the pod fails; the next one
 *  comes no later than the deadline. It counts from the pod's start time, under whichever agent.
 *  @param fail shows the pod as failed. @see https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#detailed-behavior */
export async function withinDeadline(
  deps: DeadlineDeps,
  pod: Pod,
  { make, fail }: { make(signal: AbortSignal): Promise<PassResult>; fail(why: Rejection): void },
  signal: AbortSignal,
): Promise<PassResult> {
  const left = msLeft(deps, pod);
  if (left === undefined) return make(signal);
  const over = new AbortController();
  const timer = deps.clock.after(left, () => over.abort(new CodedError("deadline_exceeded", overdue.message)));
  try {
    if (left > 0) {
      const result = await make(AbortSignal.any([signal, over.signal]));
      return { ...result, againMs: Math.min(result.againMs, Math.max(0, msLeft(deps, pod) ?? left)) };
    }
  } catch (error) {
    if (signal.aborted || (msLeft(deps, pod) ?? left) > 0) throw error;
  } finally {
    timer.cancel();
  }
  deps.events.event(podReference(pod), "Normal", overdue.reason, overdue.message);
  fail(overdue);
  return { terminal: true, againMs: 0, eviction: overdue };
}

/** Milliseconds that a pod may still be active; undefined for one without a deadline. One that has not started has all its time. */
function msLeft({ status, clock }: DeadlineDeps, pod: Pod): number | undefined {
  const { activeDeadlineSeconds } = pod.spec;
  if (activeDeadlineSeconds === undefined) return undefined;
  const { startTime } = status.get(pod.metadata.uid) ?? pod.status ?? {};
  const startedAt = startTime === undefined ? clock.now() : Date.parse(startTime);
  return startedAt + activeDeadlineSeconds * 1000 - clock.now();
}
