import {
  ContainerDevices,
  ContainerResources,
  type ListPodResourcesResponse,
  type PodResources,
} from "../gen/pod-resources.ts";
import type { Container, Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import type { Allocations } from "./allocations.ts";
import type { Inventory } from "./inventory.ts";

/** Exclusive CPUs of containers. */
export interface ExclusiveCpus {
  /** CPUs of a container; empty if it has no exclusive ones. */
  exclusiveCpus(uid: string, container: string): ReadonlySet<number>;
  /** CPUs that containers can get exclusively. */
  allocatableCpus(): ReadonlySet<number>;
}

/** Resources that containers have to themselves. */
export interface OwnedResources {
  readonly allocations: Allocations;
  /** Undefined if no container can have exclusive CPUs. */
  readonly cpus?: ExclusiveCpus | undefined;
}

/** Devices and exclusive CPUs of pods. Memory is omitted: no container has memory of its own.
 *  @see
 *  https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources */
export function listPodResources(pods: readonly Pod[], owned: OwnedResources): ListPodResourcesResponse {
  return { podResources: pods.map((pod) => podResourcesOf(pod, owned)) };
}

/** Devices and exclusive CPUs of one pod's sidecars and containers. */
export function podResourcesOf({ metadata, spec }: Pod, { allocations, cpus }: OwnedResources): PodResources {
  const sidecars = (spec.initContainers ?? []).filter(isSidecar);
  const of = ({ name }: Container): ContainerResources =>
    ContainerResources.fromPartial({
      name,
      devices: [...devicesOfContainer(metadata.uid, name, allocations)],
      cpuIds: cpuIds(cpus?.exclusiveCpus(metadata.uid, name)),
    });
  return { name: metadata.name, namespace: metadata.namespace, containers: [...sidecars, ...spec.containers].map(of) };
}

/** CPUs as the API lists them. */
export function cpuIds(cpus: ReadonlySet<number> = new Set()): bigint[] {
  return [...cpus].sort((a, b) => a - b).map(BigInt);
}

/** Healthy devices that can be allocated; a device of several NUMA nodes is listed under each. */
export function allocatableDevices(inventory: Inventory): readonly ContainerDevices[] {
  return [...inventory.registered()].flatMap(([resource, ids]) =>
    ids.flatMap((id) => {
      const nodes = inventory.device(resource, id)?.topology?.nodes ?? [];
      return nodes.length === 0 ? [entry(resource, id)] : nodes.map(({ ID }) => entry(resource, id, ID));
    }),
  );
}

/** Devices of one container, as allocated. */
function devicesOfContainer(uid: string, container: string, allocations: Allocations): readonly ContainerDevices[] {
  return [...allocations.ofContainer(uid, container)].flatMap(([resource, { devices }]) =>
    [...devices].flatMap(([node, ids]) =>
      ids.map((id) => (node === noNumaNode ? entry(resource, id) : entry(resource, id, BigInt(node)))),
    ),
  );
}

/** Placeholder NUMA node of devices without topology information. */
const noNumaNode = -1;

function entry(resourceName: string, id: string, node?: bigint): ContainerDevices {
  const topology = node === undefined ? undefined : { nodes: [{ ID: node }] };
  return ContainerDevices.fromPartial({ resourceName, deviceIds: [id], ...(topology && { topology }) });
}
