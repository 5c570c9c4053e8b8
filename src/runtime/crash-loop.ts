import { ContainerState } from "../gen/cri.ts";
import { type Backoff, createBackoff } from "../lib/backoff.ts";
import type { Clock } from "../lib/clock.ts";
import { goDuration } from "../lib/go-duration.ts";
import { toMilliseconds } from "../lib/nanoseconds.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Container, Pod } from "../objects.ts";
import type { EventSink, RuntimePod } from "../pipeline.ts";
import { backoffKey } from "../pod/hash.ts";
import { containerReference } from "../pod/reference.ts";
import { newestRun } from "../pod/runs.ts";
import { StartError } from "./start-error.ts";

const initialDelayMs = 10_000;
const resetAfterMs = 600_000;

export type CrashLoop = ReturnType<typeof createCrashLoop>;

/** Crash-loop back-off: the first restart is immediate, later ones wait 10 s, 20 s … up to `maxMs` after each exit; reset after ten
 *  minutes of running. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy */
export function createCrashLoop({
  clock,
  targetClock,
  events,
  maxMs,
}: {
  clock: Clock;
  targetClock: Pick<TargetClock, "toOurs">;
  events: EventSink;
  maxMs: number;
}) {
  const backoff: Backoff = createBackoff({
    clock,
    initialMs: Math.min(initialDelayMs, maxMs),
    maxMs,
    forgetMs: resetAfterMs,
  });
  return {
    /** Records a restart, or rejects it during the back-off.
     *  @throws StartError CrashLoopBackOff with `retryAt`. */
    check(pod: Pod, container: Container, observed: RuntimePod) {
      const last = newestRun(observed, container.name, ({ state }) => state === ContainerState.CONTAINER_EXITED);
      if (!last) return;
      const key = backoffKey(pod, container);
      const endedAt = targetClock.toOurs(toMilliseconds(last.finishedAt));
      const waitMs = backoff.remaining(key, endedAt);
      if (waitMs <= 0) {
        backoff.next(key, endedAt);
        return backoff.collect();
      }
      const { name, namespace, uid } = pod.metadata;
      const who = `${name}_${namespace}(${uid})`;
      events.event(
        containerReference(pod, container.name),
        "Warning",
        "BackOff",
        `Back-off restarting failed container ${container.name} in pod ${who}`,
      );
      throw new StartError(
        "CrashLoopBackOff",
        `back-off ${goDuration(backoff.delay(key))} restarting failed container=${container.name} pod=${who}`,
        {
          retryAt: clock.now() + waitMs,
        },
      );
    },
  };
}
