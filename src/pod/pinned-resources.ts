import type { Container, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { isSidecar } from "./containers.ts";
import { qosClass } from "./qos.ts";
import { quantityNumber } from "./quantity.ts";
import { type ResourceList, hasPodLevelResources } from "./resources.ts";

/** Key of what a pod has as a whole, beside what its containers have; no container has this name. */
export const wholePod = "";

/** True for pods that can get CPUs and memory of their own: Guaranteed ones. @param podLevel feature gate PodLevelResourceManagers: whether pods
 *  with pod-level resources are among them. */
export function isPinned({ spec }: Pod, podLevel: boolean): boolean {
  return qosClass(spec) === "Guaranteed" && (podLevel || !hasPodLevelResources(spec));
}

/** What a container of such a pod requests for itself. With pod-level resources, a container whose own requests are not equal to its limits
 *  has nothing of its own, and shares what the pod has. (kubelet, cm/qos/helpers.go) */
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

/** What a pod with pod-level resources requests as a whole; undefined for other pods. */
export function podLevelRequests({ spec }: Pod): ResourceList | undefined {
  return hasPodLevelResources(spec) ? { ...spec.resources?.limits, ...spec.resources?.requests } : undefined;
}

/** Rejects a pod if its containers with resources of their own leave nothing for the others. @param total of the pod, by resource.
 *  @param own what a container has for itself. (kubelet, validatePodScopeResources) */
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
