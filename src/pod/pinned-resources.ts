import type { Container, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { isSidecar } from "./containers.ts";
import { qosClass } from "./qos.ts";
import { quantityNumber } from "./quantity.ts";
import { type ResourceList, hasPodLevelResources } from "./resources.ts";

/** Key for the resources of a pod as a whole, next to keys for its containers; no container has this name. */
export const wholePod = "";

/** True if a pod can get exclusive CPUs and memory, because it is Guaranteed.
 *  @param podLevel feature gate PodLevelResourceManagers; if false, pods with pod-level resources are excluded. */
export function isPinned({ spec }: Pod, podLevel: boolean): boolean {
  return qosClass(spec) === "Guaranteed" && (podLevel || !hasPodLevelResources(spec));
}

/** Exclusive resources that a container of a pinned pod requests. In a pod with pod-level resources, a container whose requests
 *  differ from its limits has none, and shares the pod's resources. (kubelet, cm/qos/helpers.go) */
export function ownRequests(
  { spec }: Pod,
  { resources: { limits = {}, requests = {} } = {} }: Container,
): ResourceList {
  const all: ResourceList = { ...limits, ...requests };
  const isGuaranteed = ["cpu", "memory"].every((name) => {
    const request = quantityNumber(all[name] ?? "0");
    return request > 0 && request === quantityNumber(limits[name] ?? "0");
  });
  return isGuaranteed || !hasPodLevelResources(spec) ? all : {};
}

/** Pod-level requests; undefined for a pod without pod-level resources. */
export function podLevelRequests({ spec }: Pod): ResourceList | undefined {
  return hasPodLevelResources(spec) ? { ...spec.resources?.limits, ...spec.resources?.requests } : undefined;
}

/** Rejects a pod if its containers with exclusive resources leave nothing for the others. @param total the pod's resources by name.
 *  @param own exclusive resources of a container. (kubelet, validatePodScopeResources) */
export function emptySharedPool(
  { spec: { initContainers = [], containers } }: Pod,
  total: ReadonlyMap<string, number>,
  own: (container: Container) => ReadonlyMap<string, number>,
): Rejection | undefined {
  const used = new Map<string, number>();
  let isShared = false;
  const exhausted = () => [...total].find(([name, amount]) => (used.get(name) ?? 0) >= amount)?.[0];
  const use = (container: Container) => {
    const requests = own(container);
    isShared ||= requests.size === 0;
    for (const [name, amount] of requests) used.set(name, (used.get(name) ?? 0) + amount);
  };
  for (const container of initContainers) {
    const resource = own(container).size === 0 ? exhausted() : undefined;
    if (isSidecar(container)) use(container);
    else if (resource !== undefined)
      return rejection(`pod has shared init containers but no ${plural(resource)} available for them`);
  }
  for (const container of containers) use(container);
  const resource = isShared ? exhausted() : undefined;
  if (resource === undefined) return undefined;
  const left = resource === "cpu" ? "cpus" : "memory";
  return rejection(
    `sum of exclusive container ${resource} requests equals pod budget, leaving no ${left} for shared containers`,
  );
}

const plural = (resource: string) => (resource === "cpu" ? "cpus" : resource);

function rejection(problem: string): Rejection {
  return { reason: "EmptyPodSharedPoolError", message: `pod rejected, ${problem}` };
}
