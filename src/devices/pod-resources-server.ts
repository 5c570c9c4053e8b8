import { type Server, type ServerUnaryCall, type sendUnaryData, status } from "@grpc/grpc-js";
import {
  AllocatableResourcesResponse,
  type GetPodResourcesRequest,
  type GetPodResourcesResponse,
  type PodResources,
  PodResourcesListerService,
  ContainerDevices,
  ContainerMemory,
  ContainerResources,
  type DynamicResource,
  type ListPodResourcesResponse,
} from "../gen/pod-resources.ts";
import {
  type PodResources as AlphaPodResources,
  PodResourcesListerService as AlphaService,
} from "../gen/pod-resources-alpha.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { type NumaNodes, idsOfNodes } from "../lib/numa-nodes.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import type { Pod, Container } from "../objects.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import { type ConnectionServer, boundedService, createConnectionServer } from "../host/connection-server.ts";
import type { Inventory } from "./inventory.ts";
import { isSidecar } from "../pod/containers.ts";
import type { DeviceAllocations } from "./allocations.ts";

/** Calls of the pod-resources API. */
export interface PodResourcesMeasures {
  requested(version: string, method: PodResourcesMethod): void;
  failed(version: string, method: PodResourcesMethod): void;
}

export type PodResourcesMethod = "list" | "get" | "get_allocatable";

/** Pods of the node, for the PodResources API. */
export interface PodsProvider {
  /** All known pods. */
  all(): readonly Pod[];
  /** Those that version v1 lists. */
  listed(): readonly Pod[];
  byName(namespace: string, name: string): Pod | undefined;
}

export interface PodResourcesDeps extends OwnedResources {
  readonly pods: PodsProvider;
  readonly inventory: Inventory;
  readonly measures: PodResourcesMeasures;
  readonly budget?: TargetBudget;
  readonly clock: Clock;
}

/** Rate limit: calls per second, and burst; more are rejected. (kubelet, apis/podresources) */
const perSecond = 100;
const burst = 10;

/** Serves PodResourcesLister, v1 and v1alpha1. Allocates nothing before the first client connects.
 *  @see
 *  https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources */
export function createPodResourcesServer(deps: PodResourcesDeps): ConnectionServer {
  const { pods, inventory, measures, budget, clock } = deps;
  const mayAsk = createTokenBucket(clock, perSecond, burst);
  const answering =
    <Request, Response>(version: string, method: PodResourcesMethod, answer: (request: Request) => Response) =>
    ({ request }: ServerUnaryCall<Request, Response>, reply: sendUnaryData<Response>): void => {
      if (!mayAsk()) {
        reply({ code: status.RESOURCE_EXHAUSTED, details: "rejected by rate limit" });
        return;
      }
      measures.requested(version, method);
      try {
        reply(null, answer(request));
      } catch (error) {
        measures.failed(version, method);
        reply({ code: status.UNKNOWN, details: messageOf(error) });
      }
    };
  const get = ({ podName, podNamespace }: GetPodResourcesRequest): GetPodResourcesResponse => {
    const found = pods.byName(podNamespace, podName);
    if (!found) throw new Error(`pod ${podName} in namespace ${podNamespace} not found`);
    return { podResources: podResourcesOf(found, deps) };
  };
  const addServices = (server: Server): void => {
    server.addService(boundedService(PodResourcesListerService, budget), {
      list: answering("v1", "list", () => listPodResources(pods.listed(), deps)),
      get: answering("v1", "get", get),
      getAllocatableResources: answering("v1", "get_allocatable", () =>
        AllocatableResourcesResponse.fromPartial({
          devices: [...allocatableDevices(inventory)],
          cpuIds: cpuIds(deps.cpus?.allocatableCpus()),
          memory: memoryEntries(deps.memory?.allocatableMemory()),
        }),
      ),
    });
    server.addService(boundedService(AlphaService, budget), {
      list: answering("v1alpha1", "list", () => ({
        podResources: pods.all().map((pod) => toV1alpha1(pod, podResourcesOf(pod, deps))),
      })),
    });
  };
  return createConnectionServer(addServices, budget);
}

/** The v1alpha1 form of a pod's resources: containers only, and without topology. */
function toV1alpha1({ spec }: Pod, { name, namespace, containers }: PodResources): AlphaPodResources {
  const main = new Set(spec.containers.map((container) => container.name));
  return {
    name,
    namespace,
    containers: containers
      .filter((container) => main.has(container.name))
      .map((container) => ({
        name: container.name,
        devices: container.devices.map(({ resourceName, deviceIds }) => ({ resourceName, deviceIds })),
      })),
  };
}

export interface ExclusiveCpus {
  /** CPUs of a container; empty if it has no exclusive ones. */
  exclusiveCpus(uid: string, container: string): ReadonlySet<number>;
  /** CPUs that can be assigned exclusively. */
  allocatableCpus(): ReadonlySet<number>;
}

/** Devices of ResourceClaims. */
export interface ContainerClaims {
  dynamicResources(pod: Pod, container: Container): readonly DynamicResource[];
}

/** Memory of containers on NUMA nodes. */
export interface ContainerMemories {
  /** Memory of a container; empty if no memory is allocated to it. */
  memoryOf(uid: string, container: string): readonly NumaMemoryBlock[];
  allocatableMemory(): readonly NumaMemoryBlock[];
}

/** Memory of a type (`memory`, or huge pages such as `hugepages-2Mi`) on one or several NUMA nodes. */
export interface NumaMemoryBlock {
  readonly type: string;
  readonly bytes: number;
  readonly nodes: NumaNodes;
}

/** Resources that are allocated exclusively. */
export interface OwnedResources {
  readonly allocations: DeviceAllocations;
  /** Undefined if no container can have exclusive CPUs. */
  readonly cpus?: ExclusiveCpus | undefined;
  /** Undefined if no container can have claims. */
  readonly claims?: ContainerClaims | undefined;
  /** Undefined if memory is not allocated by NUMA node. */
  readonly memory?: ContainerMemories | undefined;
}

/** Devices, claims, exclusive CPUs and memory of pods.
 *  @see
 *  https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources */
function listPodResources(pods: readonly Pod[], owned: OwnedResources): ListPodResourcesResponse {
  return { podResources: pods.map((pod) => podResourcesOf(pod, owned)) };
}

/** Devices, claims, exclusive CPUs and memory of one pod's sidecars and containers. */
export function podResourcesOf(pod: Pod, { allocations, cpus, claims, memory }: OwnedResources): PodResources {
  const { metadata, spec } = pod;
  const sidecars = (spec.initContainers ?? []).filter(isSidecar);
  const of = (container: Container): ContainerResources => {
    const { name } = container;
    return ContainerResources.fromPartial({
      name,
      devices: [...devicesOfContainer(metadata.uid, name, allocations)],
      cpuIds: cpuIds(cpus?.exclusiveCpus(metadata.uid, name)),
      dynamicResources: [...(claims?.dynamicResources(pod, container) ?? [])],
      memory: memoryEntries(memory?.memoryOf(metadata.uid, name)),
    });
  };
  return { name: metadata.name, namespace: metadata.namespace, containers: [...sidecars, ...spec.containers].map(of) };
}

/** CPUs as the API lists them. */
function cpuIds(cpus: ReadonlySet<number> = new Set()): bigint[] {
  return [...cpus].sort((a, b) => a - b).map(BigInt);
}

/** Memory as the API lists it. */
function memoryEntries(blocks: readonly NumaMemoryBlock[] = []): ContainerMemory[] {
  return blocks.map(({ type, bytes, nodes }) =>
    ContainerMemory.fromPartial({
      memoryType: type,
      size: BigInt(bytes),
      topology: { nodes: idsOfNodes(nodes).map((id) => ({ ID: BigInt(id) })) },
    }),
  );
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

function devicesOfContainer(
  uid: string,
  container: string,
  allocations: DeviceAllocations,
): readonly ContainerDevices[] {
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
