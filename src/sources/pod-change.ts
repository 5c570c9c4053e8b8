import { isDeepStrictEqual } from "node:util";
import type { Pod } from "../objects.ts";
import type { PodOperation, SourceName } from "../pipeline.ts";
import { configMirrorAnnotation, configSeenAnnotation, configSourceAnnotation } from "../pod/labels.ts";

/** What a kubelet keeps on its own copy of a pod. */
const localAnnotations: readonly string[] = [configSourceAnnotation, configSeenAnnotation, configMirrorAnnotation];

/** A copy of the pod that carries its source and when it was first seen.
 *  @param seen RFC 3339 */
export function stamped(pod: Pod, source: SourceName, seen: string): Pod {
  const annotations = { ...pod.metadata.annotations, [configSourceAnnotation]: source, [configSeenAnnotation]: seen };
  return { ...pod, metadata: { ...pod.metadata, annotations } };
}

/** When a stamped pod was first seen, RFC 3339. */
export function firstSeen(pod: Pod): string {
  return pod.metadata.annotations?.[configSeenAnnotation] ?? "";
}

/** What became of a pod between two readings of its source: DELETE or UPDATE when what should run differs, RECONCILE when only
 *  its status does, undefined when nothing that matters does. Source: kubelet. */
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
