import { type handleUnaryCall, status } from "@grpc/grpc-js";
import { pluginFiles, podResourcesDirectoryOf } from "../host/layout.ts";
import type { Logger, ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { PluginHandler } from "../plugins/ports.ts";
import type { ResourceManager, ResourceStatuses } from "../resource-manager.ts";
import type { Sends } from "../state/signals.ts";
import type { Host, HostFs } from "../seams/host.ts";
import type { DeviceMeasures } from "./allocate.ts";
import { createDeviceAllocations, type DeviceAllocations, allocatedDevices } from "./allocations.ts";
import { type AllocatorDeps, createAllocator, createDevicePreparer } from "./allocator.ts";
import { createPluginDirectory } from "./directory.ts";
import { type DeviceAmounts, createInventory, type Inventory } from "./inventory.ts";
import { createDevicePlugins } from "./device-plugins.ts";
import {
  type PodResourcesMeasures,
  createPodResourcesServer,
  type PodsProvider,
  type OwnedResources,
} from "./pod-resources-server.ts";
import { createDeviceCheckpoint } from "./checkpoint.ts";
import { type SocketServer, serveSocket } from "../host/socket-server.ts";
import { Empty, type RegisterRequest, RegistrationService } from "../gen/device-plugin.ts";
import { messageOf } from "../lib/errors.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import { type ConnectionServer, boundedService, createConnectionServer } from "../host/connection-server.ts";

export interface DeviceManagerDeps
  extends Pick<AllocatorDeps, "allSourcesReady" | "isAlive" | "numaNodes">,
    Pick<OwnedResources, "cpus" | "claims" | "memory">,
    ClockAndLog {
  readonly host: Pick<Host, "fs" | "dial" | "listen" | "budget">;
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
  /** Timeout of plugin calls, milliseconds. */
  readonly requestTimeoutMs: number;
  /** Called when the resource amounts in the node's status change. */
  readonly onChange: () => void;
  readonly signals: Sends<"wakeWorker">;
  readonly pods: PodsProvider;
  readonly measures: { readonly devices: DeviceMeasures; readonly podResources: PodResourcesMeasures };
}

export interface DeviceManager extends ResourceManager {
  /** Handles device plugins that register in plugins_registry. */
  readonly handler: PluginHandler;
  /** Capacity and allocatable amounts of the plugins' resources. */
  amounts(): DeviceAmounts;
  /** True if no device was ever allocated on this target: devices in the status of an existing Node of this name then belong to
   *  another machine. */
  startsAnew(signal: AbortSignal): Promise<boolean>;
}

/** Device manager: plugins register on a socket below the root directory, and the node allocates their devices.
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ */
export function createDeviceManager(deps: DeviceManagerDeps): DeviceManager {
  const { host, signals, measures, clock, log } = deps;
  const inventory = createInventory({ clock });
  const allocations = createDeviceAllocations();
  const directory = createPluginDirectory(host.fs, deps.rootDir);
  const record = createDeviceCheckpoint(directory, inventory, allocations, log);
  const saveLater = () => {
    record.save().catch((err: unknown) => log.warn({ err }, "cannot save the device checkpoint"));
  };
  const plugins = createDevicePlugins({
    ...deps,
    directory,
    inventory,
    onListed(resource, changed) {
      deps.onChange();
      saveLater();
      for (const uid of allocations.podsOf(resource, changed)) signals.wakeWorker.send(uid, "device");
    },
    onGone: deps.onChange,
  });
  const common = { host, clock, log };
  const { budget } = host;
  const registration: SocketServer = {
    ...common,
    socket: directory.socket,
    server: createRegistrationServer({
      register(request, signal) {
        measures.devices.registering(request.resourceName);
        return plugins.register(request, signal);
      },
      budget,
      log,
    }),
    prepare: [record.load, directory.prepare],
    failureMessage: "cannot serve device plugin registration",
  };
  const loaded = async (signal: AbortSignal) => void (await record.loaded(signal));
  const monitors = podResourcesSocket(host.fs, deps.rootDir);
  const monitored = { inventory, allocations, measures: measures.podResources, budget };
  const server = createPodResourcesServer({ ...deps, ...monitored });
  const monitoring = { ...common, ...monitors, server, prepare: [loaded, ...monitors.prepare] };
  const known = { inventory, allocations, save: record.save, loaded };
  const { allSourcesReady, isAlive, numaNodes } = deps;
  const allocating = {
    ...known,
    serialize: createSemaphore(1),
    allSourcesReady,
    isAlive,
    numaNodes,
    measures: measures.devices,
    clock,
    log,
  };
  const registrations: Runnable = {
    name: "device-plugins",
    run: (signal) => serveSocket(registration, signal, plugins.close),
  };
  const podResources: Runnable = { name: "pod-resources", run: (signal) => serveSocket(monitoring, signal) };
  return {
    name: "devices",
    runnables: [registrations, podResources],
    ...createAllocator(allocating),
    ...createDevicePreparer(allocating),
    health: ({ metadata: { uid } }, name) => healthOf({ inventory, allocations }, uid, name),
    startsAnew: async (signal) => (await record.loaded(signal)).isMissing,
    amounts() {
      const { hasExpired, ...amounts } = inventory.amounts();
      if (hasExpired) saveLater();
      return amounts;
    },
    handler: {
      ...plugins.handler,
      async register(plugin, signal) {
        await loaded(signal);
        await plugins.handler.register(plugin, signal);
      },
    },
  };
}

/** The socket of the PodResources API, and the changes that prepare its directory. */
function podResourcesSocket(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
): Pick<SocketServer, "socket" | "prepare" | "failureMessage"> {
  const directory = podResourcesDirectoryOf(rootDir);
  const socket = `${directory}/${pluginFiles.socket}`;
  const changes = [
    { kind: "mkdir", path: directory, mode: 0o750, parents: true },
    { kind: "remove", path: socket },
  ] as const;
  return {
    socket,
    prepare: [(signal) => fs.apply(changes, signal)],
    failureMessage: "cannot serve the PodResources API",
  };
}

/** Health of a container's devices, ordered by name; a device that its plugin no longer lists counts as healthy. Empty for a
 *  container without devices. (kubelet, devicemanager/manager.go)
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/#device-health */
function healthOf(
  { inventory, allocations }: { readonly inventory: Inventory; readonly allocations: DeviceAllocations },
  uid: string,
  containerName: string,
): ResourceStatuses {
  const has = [...allocations.ofContainer(uid, containerName)];
  return has
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, allocation]) => ({
      name,
      resources: allocatedDevices(allocation)
        .toSorted((a, b) => a.localeCompare(b))
        .map((id) => {
          const health = inventory.device(name, id)?.health ?? "Healthy";
          return { resourceID: id, health: health === "Healthy" ? "Healthy" : "Unhealthy" };
        }),
    }));
}

interface RegistrationDeps {
  /** Registers a plugin. @throws with the message for the plugin. */
  readonly register: (request: RegisterRequest, signal: AbortSignal) => Promise<void>;
  readonly budget?: TargetBudget;
  readonly log: Logger;
}

/** Serves the Registration service.
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#device-plugin-registration */
export function createRegistrationServer({ register, budget, log }: RegistrationDeps): ConnectionServer {
  const answer: handleUnaryCall<RegisterRequest, Empty> = (call, reply) => {
    const given = new AbortController();
    call.on("cancelled", () => given.abort());
    const { resourceName: resource } = call.request;
    register(call.request, given.signal).then(
      () => reply(null, Empty.create()),
      (error: unknown) => {
        log.warn({ err: error, resource }, "cannot register device plugin");
        reply({ code: status.UNKNOWN, details: messageOf(error) });
      },
    );
  };
  return createConnectionServer(
    (server) => server.addService(boundedService(RegistrationService, budget), { register: answer }),
    budget,
  );
}
