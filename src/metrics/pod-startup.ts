import type { Clock } from "../lib/clock.ts";
import type { Pod, PodStatus } from "../objects.ts";

/** Duration of a pod's start from its creation, milliseconds. */
export interface PodStart {
  readonly totalMs: number;
  /** Without image pulls and init containers; undefined for a stateful pod. */
  readonly ownMs: number | undefined;
}

/** Follows pods from their first update until the API server shows all their containers as started. */
export type PodStartup = ReturnType<typeof createPodStartup>;

interface Start {
  /** Clock.monotonic(). */
  readonly seenAt: number;
  /** Successful pulls: start and end, by Clock.monotonic(). */
  readonly pulls: (readonly [number, number])[];
  /** True if the start is not measured (any more): it has been reported, or the pod had started before it was first seen. */
  reported: boolean;
  hasStatus: boolean;
}

/** @see https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md */
export function createPodStartup(clock: Clock) {
  const starts = new Map<string, Start>();
  return {
    /** Called when a source reports the pod for the first time. */
    seen({ metadata: { uid }, status }: Pod) {
      const reported = status?.startTime !== undefined;
      if (!starts.has(uid)) starts.set(uid, { seenAt: clock.monotonic(), pulls: [], reported, hasStatus: false });
    },
    /** Milliseconds since the pod was first seen; undefined if unknown. */
    sinceSeen(uid: string): number | undefined {
      const start = starts.get(uid);
      return start && clock.monotonic() - start.seenAt;
    },
    /** True on the first call for a pod that was seen, when its first status is stored. */
    isFirstStatus(uid: string): boolean {
      const start = starts.get(uid);
      if (!start || start.hasStatus) return false;
      return (start.hasStatus = true);
    },
    /** Called when an image pull starts. @returns a function to call when the pull has succeeded. */
    pulling(uid: string): () => void {
      const since = clock.monotonic();
      return () => {
        const start = starts.get(uid);
        // A started pod may pull images for years.
        if (start && !start.reported) start.pulls.push([since, clock.monotonic()]);
      };
    },
    /** Called when the API server shows a new status of the pod. @returns the duration of the pod's start, once all its containers
     *  have started; later undefined. */
    shown(pod: Pod): PodStart | undefined {
      const start = starts.get(pod.metadata.uid);
      if (!start || start.reported || !hasStarted(pod)) return undefined;
      start.reported = true;
      const totalMs = clock.now() - Date.parse(pod.metadata.creationTimestamp ?? "");
      if (Number.isNaN(totalMs)) return undefined;
      const ownMs = isStateful(pod) ? undefined : totalMs - lengthOf(start.pulls) - initMs(pod.status);
      return { totalMs, ownMs };
    },
    forget: (uid: string): void => void starts.delete(uid),
  };
}

function hasStarted({ spec, status }: Pod): boolean {
  const statuses = status?.containerStatuses ?? [];
  return statuses.length >= spec.containers.length && statuses.every(({ state }) => state?.running !== undefined);
}

function isStateful({ spec }: Pod): boolean {
  return (spec.volumes ?? []).some(
    ({ configMap, downwardAPI, emptyDir, projected, secret }) =>
      !(configMap ?? downwardAPI ?? emptyDir ?? projected ?? secret),
  );
}

/** Total time covered by the spans. */
function lengthOf(spans: readonly (readonly [number, number])[]): number {
  let length = 0;
  let covered = Number.NEGATIVE_INFINITY;
  for (const [from, to] of [...spans].sort(([a], [b]) => a - b)) {
    length += Math.max(0, to - Math.max(from, covered));
    covered = Math.max(covered, to);
  }
  return length;
}

/** Total duration of the finished init containers. */
function initMs(status: PodStatus | undefined): number {
  return (status?.initContainerStatuses ?? []).reduce((sum, { state }) => {
    const { startedAt, finishedAt } = state?.terminated ?? {};
    const ms = Date.parse(finishedAt ?? "") - Date.parse(startedAt ?? "");
    return sum + (ms > 0 ? ms : 0);
  }, 0);
}
