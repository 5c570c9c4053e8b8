import type { Container, Pod } from "../objects.ts";
import type { NamedContainer } from "../pipeline.ts";
import { configMirrorAnnotation, configSourceAnnotation } from "./labels.ts";

/** Priority from which on a pod is critical to the system. */
const criticalPriority = 2_000_000_000;

/** Every container of a pod: init containers first, then the main ones, then ephemeral ones. */
export function allContainers({ spec }: Pod): readonly NamedContainer[] {
  return [
    ...(spec.initContainers ?? []).map((container) => ({ kind: "initContainers" as const, container })),
    ...spec.containers.map((container) => ({ kind: "containers" as const, container })),
    ...(spec.ephemeralContainers ?? []).map((container) => ({ kind: "ephemeralContainers" as const, container })),
  ];
}

export function findContainer(pod: Pod, name: string): NamedContainer | undefined {
  return allContainers(pod).find(({ container }) => container.name === name);
}

/** An init container that keeps running beside the main ones.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/ */
export function isSidecar(container: Container): boolean {
  return container.restartPolicy === "Always";
}

/** From a file or a URL, not from the API server. */
export function isStaticPod({ metadata }: Pod): boolean {
  const source = metadata.annotations?.[configSourceAnnotation];
  return source !== undefined && source !== "api";
}

/** The API server's picture of a static pod. */
export function isMirrorPod({ metadata }: Pod): boolean {
  return metadata.annotations?.[configMirrorAnnotation] !== undefined;
}

export function isCriticalPod(pod: Pod): boolean {
  return isStaticPod(pod) || isMirrorPod(pod) || (pod.spec.priority ?? 0) >= criticalPriority;
}
