import type { Container, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { isClaimableResource, isExtendedResource, isProvidedByClaim } from "../pod/extended-resource.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import { podRequests, requestForPreemption } from "../pod/resources.ts";
import type { PodAdmitAttributes } from "./admit-attributes.ts";

/** Checked in this order; other resources follow by name. */
const coreResources = ["cpu", "memory", "ephemeral-storage"];

/** A resource that the node has too little of. CPU in millicores, all others in whole units. */
export interface InsufficientResource {
  readonly resource: string;
  readonly requested: number;
  readonly used: number;
  readonly capacity: number;
}

/** Requested resources that exceed the node's free capacity, including the number of pods.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/ */
export function insufficientResources({
  pod,
  otherPods,
  allocatable,
}: PodAdmitAttributes): readonly InsufficientResource[] {
  const maxPods = quantityValue(allocatable["pods"] ?? "0");
  const tooManyPods = otherPods.length + 1 > maxPods;
  const requests = podRequests(withoutClaimedResources(pod), { overhead: true });
  const names = Object.keys(requests).sort();
  const short = [...coreResources, ...names.filter((one) => !coreResources.includes(one))].flatMap((resource) => {
    // The node does not account for cluster-level resources and resources of other drivers.
    if (allocatable[resource] === undefined && isExtendedResource(resource)) return [];
    const requested = amount(resource, requests[resource]);
    // Skip resources that the pod does not request before adding up the others: admitting many pods at once is quadratic.
    if (requested <= 0) return [];
    const held = otherPods.map((other) => amount(resource, podRequests(other, { overhead: true })[resource]));
    const used = held.reduce((sum, one) => sum + one, 0);
    const capacity = amount(resource, allocatable[resource]);
    return requested > capacity - used ? [{ resource, requested, used, capacity }] : [];
  });
  return [
    ...(tooManyPods ? [{ resource: "pods", requested: 1, used: otherPods.length, capacity: maxPods }] : []),
    ...short,
  ];
}

/** The pod without requests for extended resources that its ResourceClaim provides. They are not compared with the Node, which shows 0
 *  after a device plugin for the same resource is gone.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource */
function withoutClaimedResources(pod: Pod): Pod {
  if (!pod.status?.extendedResourceClaimStatus) return pod;
  const remaining = (container: Container): Container => {
    const { resources } = container;
    const requests = Object.entries(resources?.requests ?? {}).filter(
      ([name]) => !(isClaimableResource(name) && isProvidedByClaim(pod, container.name, name)),
    );
    return { ...container, resources: { ...resources, requests: Object.fromEntries(requests) } };
  };
  const { containers, initContainers } = pod.spec;
  const filtered = {
    containers: containers.map(remaining),
    ...(initContainers && { initContainers: initContainers.map(remaining) }),
  };
  return { ...pod, spec: { ...pod.spec, ...filtered } };
}

/** The kubelet's rejection for a shortage. */
export function outOfResource({ resource, requested, used, capacity }: InsufficientResource): Rejection {
  return {
    reason: `OutOf${resource}`,
    message: `Node didn't have enough resource: ${resource}, requested: ${requested}, used: ${used}, capacity: ${capacity}`,
  };
}

/** Amount of a resource that removing a pod frees, in the shortage's units; each pod counts as one of `pods`. */
export function freedBy(pod: Pod, resource: string): number {
  return resource === "pods" ? 1 : amount(resource, requestForPreemption(pod, resource));
}

function amount(name: string, quantity: string | undefined): number {
  if (quantity === undefined) return 0;
  return name === "cpu" ? quantityMilli(quantity) : quantityValue(quantity);
}
