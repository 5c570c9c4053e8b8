import { messageOf, throwIfAborted } from "../lib/errors.ts";
import type { Container, Pod } from "../objects.ts";
import { isExtendedResource, isProvidedByClaim } from "../pod/extended-resource.ts";
import type { ContainerAdditions, ResourceManager } from "../resource-manager.ts";
import { allocatedDevices } from "./allocations.ts";
import { requestedDevices, type AllocateDeps, allocateTo, type IsAlreadyRunning, connectedPlugin } from "./allocate.ts";
import { createPodAllocator } from "./pod-allocator.ts";
import type { ContainerAllocateResponse } from "../gen/device-plugin.ts";
import type { Logger } from "../lib/log.ts";

export interface AllocatorDeps extends AllocateDeps {
  /** Resolves once the allocations from before a restart are loaded. */
  readonly loaded: (signal: AbortSignal) => Promise<void>;
  readonly serialize: <T>(work: () => Promise<T>) => Promise<T>;
  /** Numbers of the target's NUMA nodes; empty if no topology manager asks for hints. */
  readonly numaNodes: readonly number[];
  /** True once every source has listed its pods. */
  readonly allSourcesReady: () => boolean;
  /** True when a sandbox or container of the pod runs. */
  readonly isAlive: IsAlreadyRunning;
}

type DeviceAllocator = Required<Pick<ResourceManager, "podAllocator" | "allocatable" | "release">>;

/** Allocates devices to pods at their admission. For a pod that already has devices, the allocatable amount is at least the allocated
 *  amount: a device that became unhealthy must not terminate the pods that use it. */
export function createAllocator(deps: AllocatorDeps): DeviceAllocator {
  const { inventory, allocations, loaded, serialize, allSourcesReady, isAlive, log } = deps;
  const isAlreadyRunning: IsAlreadyRunning = (uid) => !allSourcesReady() && isAlive(uid);
  return {
    async podAllocator(pod, others, signal) {
      if (!containersOf(pod).some(requestsExtendedResources)) return undefined;
      await loaded(signal);
      await serialize(async () => {
        if (allSourcesReady()) allocations.retainPods(new Set([pod, ...others].map(({ metadata }) => metadata.uid)));
      });
      return createPodAllocator({ ...deps, isAlreadyRunning, signal }, pod);
    },
    allocatable(pod) {
      const own = inventory.amounts().allocatable;
      if (!allocations.hasPod(pod.metadata.uid)) return own;
      const allocated = allocations.resources().map((name) => [name, allocations.inUse(name).size] as const);
      const short = allocated.filter(([name, count]) => Number(own[name] ?? "0") < count);
      return { ...own, ...Object.fromEntries(short.map(([name, count]) => [name, String(count)])) };
    },
    release(uid) {
      if (!allocations.remove(uid)) return;
      deps.save().catch((err: unknown) => log.warn({ err }, "cannot write the checkpoint of allocated devices"));
    },
  };
}

/** Prepares the devices of containers. A pod that was admitted before its plugin registered gets its devices here. */
export function createDevicePreparer(deps: AllocatorDeps): Pick<ResourceManager, "prepareContainer"> {
  const { inventory, allocations, loaded, serialize, log } = deps;
  const preStart = async (uid: string, container: string, resource: string, signal: AbortSignal) => {
    const endpoint = inventory.endpoint(resource);
    if (!endpoint) throw new Error(`endpoint not found in cache for a registered resource: ${resource}`);
    if (!endpoint.plugin?.options.preStartRequired) return;
    const has = allocations.get({ uid, container, resource });
    if (!has)
      throw new Error(
        `no devices found allocated in local cache for pod ${uid}, container ${container}, resource ${resource}`,
      );
    try {
      await connectedPlugin(inventory, resource).preStart(allocatedDevices(has), signal);
    } catch (error) {
      throwIfAborted(signal);
      throw new Error(`device plugin PreStartContainer rpc failed with err: ${messageOf(error)}`, { cause: error });
    }
  };
  return {
    async prepareContainer(pod, container, signal): Promise<ContainerAdditions | undefined> {
      if (!requestsExtendedResources(container)) return undefined;
      await loaded(signal);
      const { uid } = pod.metadata;
      const requested = requestedDevices(deps, container).filter(
        ([resource, required]) => required > 0 && !isProvidedByClaim(pod, container.name, resource),
      );
      for (const [resource] of requested) await preStart(uid, container.name, resource, signal);
      const lacks = requested.some(([resource]) => !allocations.get({ uid, container: container.name, resource }));
      const recipient = {
        pod,
        container,
        reusable: new Map<string, readonly string[]>(),
        isAlreadyRunning: () => false,
      };
      if (lacks) await serialize(() => allocateTo(deps, recipient, signal));
      const has = [...allocations.ofContainer(uid, container.name).values()];
      return has.length === 0
        ? undefined
        : mergeDevices(
            has.map(({ response }) => response),
            log,
          );
    },
  };
}

function containersOf({ spec: { initContainers = [], containers } }: Pod): readonly Container[] {
  return [...initContainers, ...containers];
}

function requestsExtendedResources({ resources }: Container): boolean {
  return Object.keys(resources?.limits ?? {}).some(isExtendedResource);
}

/** Merges the plugins' responses for a container. If two plugins set the same name, the first one wins. (kubelet,
 *  devicemanager/pod_devices.go) */
function mergeDevices(responses: readonly ContainerAllocateResponse[], log: Logger): ContainerAdditions {
  const first = <Item>(items: readonly Item[], keyOf: (item: Item) => string, valueOf: (item: Item) => string) =>
    firstOfEach(items, keyOf, valueOf, log);
  const all = <Item>(of: (response: ContainerAllocateResponse) => readonly Item[]) => responses.flatMap(of);
  const pairs = (of: (response: ContainerAllocateResponse) => Readonly<Record<string, string>>) =>
    first(
      all((response) => Object.entries(of(response))),
      ([name]) => name,
      ([, value]) => value,
    );
  const path = ({ containerPath }: { readonly containerPath: string }) => containerPath;
  const source = ({ hostPath }: { readonly hostPath: string }) => hostPath;
  return {
    environment: new Map(pairs(({ envs }) => envs)),
    mounts: first(
      all(({ mounts }) => mounts),
      path,
      source,
    ),
    devices: first(
      all(({ devices }) => devices),
      path,
      source,
    ),
    annotations: Object.fromEntries(pairs(({ annotations }) => annotations)),
    cdiDevices: [...new Set(all(({ cdiDevices }) => cdiDevices.map(({ name }) => name)))],
  };
}

function firstOfEach<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  valueOf: (item: Item) => string,
  log: Logger,
): readonly Item[] {
  const known = new Map<string, Item>();
  for (const item of items) {
    const key = keyOf(item);
    const before = known.get(key);
    if (before === undefined) known.set(key, item);
    else if (valueOf(before) !== valueOf(item))
      log.warn({ name: key }, "conflicting device plugin responses; using the first");
  }
  return [...known.values()];
}
