import { type Server, type ServerUnaryCall, type sendUnaryData, status } from "@grpc/grpc-js";
import {
  AllocatableResourcesResponse,
  type GetPodResourcesRequest,
  type GetPodResourcesResponse,
  type PodResources,
  PodResourcesListerService,
} from "../gen/pod-resources.ts";
import {
  type PodResources as AlphaPodResources,
  PodResourcesListerService as AlphaService,
} from "../gen/pod-resources-alpha.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import type { Pod } from "../objects.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import { type ConnectionServer, boundedService, createConnectionServer } from "./connection-server.ts";
import type { Inventory } from "./inventory.ts";
import { type OwnedResources, allocatableDevices, cpuIds, listPodResources, podResourcesOf } from "./pod-resources.ts";

/** Calls of the pod-resources API. */
export interface PodResourcesMeasures {
  requested(version: string, method: PodResourcesMethod): void;
  failed(version: string, method: PodResourcesMethod): void;
}

export type PodResourcesMethod = "list" | "get" | "get_allocatable";

/** Pods of the node, for the PodResources API. */
export interface PodsProvider {
  /** All known pods, and the active ones. */
  all(): readonly Pod[];
  active(): readonly Pod[];
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
      list: answering("v1", "list", () => listPodResources(pods.active(), deps)),
      get: answering("v1", "get", get),
      getAllocatableResources: answering("v1", "get_allocatable", () =>
        AllocatableResourcesResponse.fromPartial({
          devices: [...allocatableDevices(inventory)],
          cpuIds: cpuIds(deps.cpus?.allocatableCpus()),
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
