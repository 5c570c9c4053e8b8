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
  /** Its start is not measured or was already reported: this node started it earlier, or has recorded it. */
  reported: boolean;
  hasStatus: boolean;
}

/** @see https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md */
export function createPodStartup(clock: Clock) {
  const starts = new Map<string, Start>();
  return {
    /** A source has reported the pod for the first time. */
    seen({ metadata: { uid }, status }: Pod) {
      const reported = status?.startTime !== undefined;
      if (!starts.has(uid)) starts.set(uid, { seenAt: clock.monotonic(), pulls: [], reported, hasStatus: false });
    },
    /** Milliseconds since it was first seen; undefined if unknown. */
    sinceSeen(uid: string): number | undefined {
      const start = starts.get(uid);
      return start && clock.monotonic() - start.seenAt;
    },
    /** True once for a pod that was seen: its first status was stored. */
    isFirstStatus(uid: string): boolean {
      const start = starts.get(uid);
      if (!start || start.hasStatus) return false;
      return (start.hasStatus = true);
    },
    /** @returns a function to call when the pull has succeeded. */
    pulling(uid: string): () => void {
      const since = clock.monotonic();
      return () => {
        const start = starts.get(uid);
        // A started pod may pull images for years.
        if (start && !start.reported) start.pulls.push([since, clock.monotonic()]);
      };
    },
    /** The API server shows this status. @returns the duration of its start, once. */
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
