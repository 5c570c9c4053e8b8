import { isDeepStrictEqual } from "node:util";
import type { Pod } from "../objects.ts";
import type { PodOperation, SourceName } from "../pipeline.ts";
import { configMirrorAnnotation, configSeenAnnotation, configSourceAnnotation } from "../pod/labels.ts";

/** Annotations that a kubelet adds to its own copy of a pod. */
const localAnnotations: readonly string[] = [configSourceAnnotation, configSeenAnnotation, configMirrorAnnotation];

/** A copy of the pod with its source and the time when it was first seen. @param seen RFC 3339 */
export function annotated(pod: Pod, source: SourceName, seen: string): Pod {
  const annotations = { ...pod.metadata.annotations, [configSourceAnnotation]: source, [configSeenAnnotation]: seen };
  return { ...pod, metadata: { ...pod.metadata, annotations } };
}

/** Time when a stamped pod was first seen, RFC 3339. */
export function firstSeenAt(pod: Pod): string {
  return pod.metadata.annotations?.[configSeenAnnotation] ?? "";
}

/** Change of a pod between two reads of its source: DELETE or UPDATE if the desired state differs, RECONCILE if only its status does,
 *  undefined if nothing relevant does. Source: kubelet. */
export function changeOf(old: Pod, now: Pod): Exclude<PodOperation, "ADD" | "REMOVE"> | undefined {
  if (old.metadata.resourceVersion !== undefined && old.metadata.resourceVersion === now.metadata.resourceVersion)
    return undefined;
  if (differs(old, now)) return now.metadata.deletionTimestamp ? "DELETE" : "UPDATE";
  return isDeepStrictEqual(old.status, now.status) ? undefined : "RECONCILE";
}

function differs(old: Pod, now: Pod): boolean {
  const wish = ({ metadata, spec }: Pod) => [
    spec,
    metadata.labels ?? {},
    metadata.deletionTimestamp,
    metadata.deletionGracePeriodSeconds,
    foreignAnnotations(metadata.annotations),
  ];
  return !isDeepStrictEqual(wish(old), wish(now));
}

function foreignAnnotations(annotations: Readonly<Record<string, string>> | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries(annotations ?? {}).filter(([key]) => !localAnnotations.includes(key)));
}
