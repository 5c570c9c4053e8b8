import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../lib/clock.ts";
import type { EventSink, PodOperation, PodUpdate, SourceName } from "../pipeline.ts";
import type { Pod } from "../objects.ts";
import { desiredPod } from "../roles.ts";
import { configMirrorAnnotation, configSeenAnnotation, configSourceAnnotation } from "../pod/labels.ts";

export interface PodConfigDeps {
  /** Records the sources that have reported their pods; written by the pod config. */
  readonly sourcesReady: { note(source: SourceName): void };
  readonly emit: (update: PodUpdate) => void;
  readonly events: EventSink;
  readonly clock: Clock;
}

/** The order in which changes of one set are emitted: removals make room for additions. */
const emissionOrder: readonly PodOperation[] = ["REMOVE", "ADD", "UPDATE", "DELETE", "RECONCILE"];

/** Turns each source's complete sets into changes. Pods are identified by UID; a DELETE is the start of a graceful deletion, a REMOVE the
 *  removal of the object. Source: kubelet. */
export function createPodConfig(deps: PodConfigDeps) {
  const { sourcesReady, emit, clock } = deps;
  const known = new Map<SourceName, Map<string, KnownPod>>();
  return {
    /** Accepts the complete set of pods of a source at each change; an empty set also marks the source as ready. Emits the differences from
     *  the previous set. */
    set(source: SourceName, wanted: readonly Pod[]) {
      const before = known.get(source);
      const pods = withoutDuplicates(source, wanted, deps.events);
      const { now, changes } = compare({ source, before: before ?? new Map(), pods, seenAt: clock.now() });
      known.set(source, now);
      sourcesReady.note(source);
      for (const op of emissionOrder) {
        const changed = changes.get(op);
        // An empty ADD marks the source as ready without pods.
        if (changed) emit({ op, source, pods: changed.map(desiredPod) });
        else if (op === "DELETE" && !before && changes.size === 0) emit({ op: "ADD", source, pods: [] });
      }
    },
  };
}

/** A pod from its source, and the copy stamped with the source. The copy is reused for an unchanged pod, because each change of one pod
 *  delivers all pods of the node. */
interface KnownPod {
  readonly given: Pod;
  readonly pod: Pod;
}

interface Comparison {
  readonly source: SourceName;
  readonly before: ReadonlyMap<string, KnownPod>;
  readonly pods: readonly Pod[];
  /** Milliseconds since the epoch. */
  readonly seenAt: number;
}

function compare({ source, before, pods, seenAt }: Comparison): {
  now: Map<string, KnownPod>;
  changes: Map<PodOperation, Pod[]>;
} {
  const now = new Map<string, KnownPod>();
  const changes = new Map<PodOperation, Pod[]>();
  const add = (op: PodOperation, pod: Pod) => changes.set(op, [...(changes.get(op) ?? []), pod]);
  for (const given of pods) {
    const uid = given.metadata.uid;
    const old = before.get(uid);
    if (old?.given === given) {
      now.set(uid, old);
      continue;
    }
    const next = annotated(given, source, old ? firstSeenAt(old.pod) : new Date(seenAt).toISOString());
    const op = old ? changeOf(old.pod, next) : "ADD";
    now.set(uid, { given, pod: next });
    if (op) add(op, next);
  }
  for (const [uid, { pod }] of before) if (!now.has(uid)) add("REMOVE", pod);
  return { now, changes };
}

function withoutDuplicates(source: SourceName, pods: readonly Pod[], events: EventSink): Pod[] {
  const names = new Set<string>();
  return pods.filter((pod) => {
    const { namespace, name, uid } = pod.metadata;
    const key = `${namespace}/${name}`;
    if (!names.has(key)) return names.add(key);
    const about = { apiVersion: "v1", kind: "Pod", namespace, name, uid };
    const message = `Error validating pod ${name}_${namespace}(${uid}) from ${source} due to duplicate pod name "${name}", ignoring`;
    events.event(about, "Warning", "FailedValidation", message);
    return false;
  });
}

/** Annotations that a kubelet adds to its own copy of a pod. */
const localAnnotations: readonly string[] = [configSourceAnnotation, configSeenAnnotation, configMirrorAnnotation];

/** A copy of the pod with its source and the time when it was first seen. @param seen RFC 3339 */
function annotated(pod: Pod, source: SourceName, seen: string): Pod {
  const annotations = { ...pod.metadata.annotations, [configSourceAnnotation]: source, [configSeenAnnotation]: seen };
  return { ...pod, metadata: { ...pod.metadata, annotations } };
}

/** Time when a stamped pod was first seen, RFC 3339. */
function firstSeenAt(pod: Pod): string {
  return pod.metadata.annotations?.[configSeenAnnotation] ?? "";
}

/** Change of a pod between two reads of its source: DELETE or UPDATE if the desired state differs, RECONCILE if only its status does,
 *  undefined if nothing relevant does. Source: kubelet. */
function changeOf(old: Pod, now: Pod): Exclude<PodOperation, "ADD" | "REMOVE"> | undefined {
  if (old.metadata.resourceVersion !== undefined && old.metadata.resourceVersion === now.metadata.resourceVersion)
    return undefined;
  if (differs(old, now)) return now.metadata.deletionTimestamp ? "DELETE" : "UPDATE";
  return isDeepStrictEqual(old.status, now.status) ? undefined : "RECONCILE";
}

function differs(old: Pod, now: Pod): boolean {
  const comparable = ({ metadata, spec }: Pod) => [
    spec,
    metadata.labels ?? {},
    metadata.deletionTimestamp,
    metadata.deletionGracePeriodSeconds,
    foreignAnnotations(metadata.annotations),
  ];
  return !isDeepStrictEqual(comparable(old), comparable(now));
}

function foreignAnnotations(annotations: Readonly<Record<string, string>> | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries(annotations ?? {}).filter(([key]) => !localAnnotations.includes(key)));
}
