import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, Rejection, StatusReader } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import type { PassResult } from "./pod-worker.ts";

const deadlineExceeded: Rejection = {
  reason: "DeadlineExceeded",
  message: "Pod was active on the node longer than the specified deadline",
};

export interface DeadlineDeps {
  readonly status: StatusReader;
  readonly events: EventSink;
  readonly clock: Clock;
}

/** Runs a sync pass within the pod's activeDeadlineSeconds: a longer pass is aborted, and the pod fails; the next pass runs no later
 *  than the deadline. The deadline counts from the pod's start time, even if another agent started the pod.
 *  @param fail reports the pod as Failed. @see https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#detailed-behavior */
export async function withinDeadline(
  deps: DeadlineDeps,
  pod: Pod,
  { run, fail }: { run(signal: AbortSignal): Promise<PassResult>; fail(why: Rejection): void },
  signal: AbortSignal,
): Promise<PassResult> {
  const left = msLeft(deps, pod);
  if (left === undefined) return run(signal);
  const expired = new AbortController();
  const timer = deps.clock.after(left, () =>
    expired.abort(new CodedError("deadline_exceeded", deadlineExceeded.message)),
  );
  try {
    if (left > 0) {
      const result = await run(AbortSignal.any([signal, expired.signal]));
      return { ...result, requeueAfterMs: Math.min(result.requeueAfterMs, Math.max(0, msLeft(deps, pod) ?? left)) };
    }
  } catch (error) {
    if (signal.aborted || (msLeft(deps, pod) ?? left) > 0) throw error;
  } finally {
    timer.cancel();
  }
  deps.events.event(podReference(pod), "Normal", deadlineExceeded.reason, deadlineExceeded.message);
  fail(deadlineExceeded);
  return { terminal: true, requeueAfterMs: 0, eviction: deadlineExceeded };
}

/** Milliseconds until the pod's deadline; undefined without a deadline. A pod that has not started has its full time. */
function msLeft({ status, clock }: DeadlineDeps, pod: Pod): number | undefined {
  const { activeDeadlineSeconds } = pod.spec;
  if (activeDeadlineSeconds === undefined) return undefined;
  const { startTime } = status.get(pod.metadata.uid) ?? pod.status ?? {};
  const startedAt = startTime === undefined ? clock.now() : Date.parse(startTime);
  return startedAt + activeDeadlineSeconds * 1000 - clock.now();
}
