import { isDeepStrictEqual } from "node:util";
import { NamespaceMode } from "../gen/cri.ts";
import type { Pod } from "../objects.ts";
import type { PodCache, RuntimePod } from "../pipeline.ts";
import { containerHash } from "../pod/hash.ts";
import {
  configHashAnnotation,
  configMirrorAnnotation,
  configSeenAnnotation,
  configSourceAnnotation,
  containerHashAnnotation,
  containerNameLabel,
} from "../pod/labels.ts";
import type { StaticPod } from "./static-pod.ts";

/** Gives a static pod the UID under which it already runs: a kubelet's UIDs cannot be computed, and with another UID the pod would be
 *  restarted as a different one. The running pod must match the manifest exactly: the same containers with the same images, labels and
 *  annotations. A UID in the manifest takes precedence. */
export function adoptRunning(cache: PodCache, { pod, uidGiven }: StaticPod): Pod {
  const { namespace, name, uid } = pod.metadata;
  if (uidGiven || cache.get(uid)) return pod;
  const running = cache.list().find((one) => one.namespace === namespace && one.name === name && runs(one, pod));
  if (!running) return pod;
  const annotations = { ...pod.metadata.annotations, [configHashAnnotation]: running.uid };
  return { ...pod, metadata: { ...pod.metadata, uid: running.uid, annotations } };
}

const localAnnotations = new Set([
  configHashAnnotation,
  configMirrorAnnotation,
  configSeenAnnotation,
  configSourceAnnotation,
]);

function runs({ sandboxes, containers }: RuntimePod, pod: Pod): boolean {
  const sandbox = sandboxes[0];
  if (!sandbox || (sandbox.annotations[configSourceAnnotation] ?? "api") === "api") return false;
  const network = sandbox.linux?.namespaces?.options?.network ?? NamespaceMode.POD;
  if ((network === NamespaceMode.NODE) !== (pod.spec.hostNetwork === true)) return false;
  const labels = Object.entries(pod.metadata.labels ?? {});
  if (!labels.every(([key, value]) => sandbox.labels[key] === value)) return false;
  if (!isDeepStrictEqual(foreign(sandbox.annotations), foreign(pod.metadata.annotations ?? {}))) return false;
  const specs = new Map(
    [...(pod.spec.initContainers ?? []), ...pod.spec.containers].map((spec) => [spec.name, containerHash(spec)]),
  );
  const hashes = new Map(
    // The list is sorted newest first, so the map keeps the oldest attempt of each container; all attempts have the same spec.
    containers.map(({ labels: own, annotations }) => [
      own[containerNameLabel] ?? "",
      annotations[containerHashAnnotation],
    ]),
  );
  return (
    pod.spec.containers.every(({ name }) => hashes.has(name)) &&
    [...hashes].every(([name, hash]) => specs.get(name) === hash)
  );
}

function foreign(annotations: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(annotations).filter(([key]) => !localAnnotations.has(key)));
}
