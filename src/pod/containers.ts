import type { Container, Pod } from "../objects.ts";
import { configMirrorAnnotation, configSourceAnnotation } from "./labels.ts";

/** The list of the spec that a container is in. */
export type ContainerKind = "containers" | "initContainers" | "ephemeralContainers";

export interface NamedContainer {
  readonly kind: ContainerKind;
  readonly container: Container;
}

/** Priority of the class system-cluster-critical, the lower of the two critical classes. */
const systemCriticalPriority = 2_000_000_000;

/** All containers of a pod: init containers, main containers, then ephemeral containers. */
export function allContainers({ spec }: Pod): readonly NamedContainer[] {
  return [
    ...(spec.initContainers ?? []).map((container) => ({ kind: "initContainers" as const, container })),
    ...spec.containers.map((container) => ({ kind: "containers" as const, container })),
    ...(spec.ephemeralContainers ?? []).map((container) => ({ kind: "ephemeralContainers" as const, container })),
  ];
}

/** True for a sidecar: an init container that keeps running next to the main containers.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/ */
export function isSidecar(container: Container): boolean {
  return container.restartPolicy === "Always";
}

/** True for a pod from a file or URL, not from the API server. */
export function isStaticPod({ metadata }: Pod): boolean {
  const source = metadata.annotations?.[configSourceAnnotation];
  return source !== undefined && source !== "api";
}

/** True for a pod that the node does not evict or preempt for its own needs: critical by priority, static, or a mirror pod.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/ */
export function isCritical(pod: Pod): boolean {
  return isStaticPod(pod) || isMirrorPod(pod) || (pod.spec.priority ?? 0) >= systemCriticalPriority;
}

/** True for a mirror pod, the API object of a static pod. */
export function isMirrorPod({ metadata }: Pod): boolean {
  return metadata.annotations?.[configMirrorAnnotation] !== undefined;
}
