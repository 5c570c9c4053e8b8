import type { Duplex } from "node:stream";
import type { PluginHandler } from "../drivers.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type Service, onAbort, untilAborted } from "../lib/service-group.ts";
import { createTurns } from "../lib/turns.ts";
import type { ContainerStatus } from "../objects.ts";
import type { DeviceAllocator, DeviceSource } from "../pipeline.ts";
import type { Sends } from "../state/signals.ts";
import type { Host, HostListener } from "../seams/host.ts";
import { createAllocations } from "./allocations.ts";
import { type AllocatorOptions, createAllocator, createDeviceSource } from "./allocator.ts";
import { createPluginDirectory, type PluginDirectory } from "./directory.ts";
import { healthOf } from "./health.ts";
import { type DeviceAmounts, createInventory } from "./inventory.ts";
import { createPlugins, type Plugins } from "./plugins.ts";
import { createRecord, type DeviceRecord } from "./record.ts";
import { createRegistrationServer } from "./registration.ts";

export interface DevicesDeps {
  readonly host: Pick<Host, "fs" | "dial" | "listen">;
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
  /** Timeout of plugin calls, milliseconds. */
  readonly requestTimeoutMs: number;
  /** Called when the amounts in the node's status change. */
  readonly onChange: () => void;
  readonly signals: Sends<"wake">;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface Devices extends DeviceSource {
  /** Serves plugin registrations. */
  readonly service: Service;
  /** Takes plugins that register by a socket of theirs in plugins_registry. */
  readonly handler: PluginHandler;
  /** Capacity of the plugins' resources. */
  amounts(): DeviceAmounts;
  allocator(options: AllocatorOptions): DeviceAllocator;
  /** Health of a container's devices; empty for a container without any. */
  health(uid: string, containerName: string): NonNullable<ContainerStatus["allocatedResourcesStatus"]>;
  /** True when no device was ever allocated here: devices in the status of a Node of that name belong to another machine. */
  startsAnew(signal: AbortSignal): Promise<boolean>;
}

/** Device plugins: they register on a socket below the root directory, and the node allocates their devices.
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ */
export function createDevices(deps: DevicesDeps): Devices {
  const { host, signals, clock, log } = deps;
  const inventory = createInventory({ clock });
  const allocations = createAllocations();
  const directory = createPluginDirectory(host.fs, deps.rootDir);
  const record = createRecord({ directory, inventory, allocations, log });
  const saveLater = () => {
    record.save().catch((err: unknown) => log.warn({ err }, "what is known of devices was not written down"));
  };
  const plugins = createPlugins({
    ...deps,
    directory,
    inventory,
    onListed(resource, changed) {
      deps.onChange();
      saveLater();
      for (const uid of allocations.podsOf(resource, changed)) signals.wake.send(uid, "device");
    },
    onGone: deps.onChange,
  });
  const loaded = async (signal: AbortSignal) => void (await record.loaded(signal));
  const common = { inventory, allocations, save: record.save, loaded, inTurn: createTurns(1), log };
  return {
    ...createDeviceSource(common),
    allocator: (options) => createAllocator(common, options),
    health: (uid, name) => healthOf({ inventory, allocations }, uid, name),
    startsAnew: async (signal) => (await record.loaded(signal)).anew,
    amounts() {
      const { givenUp, ...amounts } = inventory.amounts();
      if (givenUp) saveLater();
      return amounts;
    },
    handler: {
      ...plugins.handler,
      async register(plugin, signal) {
        await loaded(signal);
        await plugins.handler.register(plugin, signal);
      },
    },
    service: {
      name: "device-plugins",
      run: (signal) => serve({ host, directory, record, plugins, clock, log }, signal),
    },
  };
}

interface Serving {
  readonly host: Pick<Host, "listen">;
  readonly directory: PluginDirectory;
  readonly record: Pick<DeviceRecord, "load">;
  readonly plugins: Plugins;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A failure is logged and retried; the node works without device plugins. */
async function serve(serving: Serving, signal: AbortSignal): Promise<void> {
  const { host, directory, record, plugins, clock, log } = serving;
  const server = createRegistrationServer({ register: plugins.register, log });
  let listener: HostListener | undefined;
  try {
    await untilDone(serving, () => record.load(signal), signal);
    await untilDone(serving, () => directory.prepare(signal), signal);
    const listen = async () => void (listener = await opened(host, directory.socket, server.take, signal));
    await untilDone(serving, listen, signal);
    await onAbort(signal);
  } finally {
    server.close();
    await plugins.close();
    // On an unreachable target the socket stays until the next start.
    if (listener) await untilAborted(closed(listener), clock.within(closeMs)).catch(() => undefined);
  }
}

/** Opens a listener that the signal does not close: the caller awaits its end. */
async function opened(
  host: Serving["host"],
  path: string,
  take: (connection: Duplex) => void,
  signal: AbortSignal,
): Promise<HostListener | undefined> {
  const opening = new AbortController();
  const giveUp = () => opening.abort();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    return await host.listen?.({ unix: path }, take, opening.signal);
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}

async function closed(listener: HostListener): Promise<void> {
  await listener[Symbol.asyncDispose]();
}

/** Longest wait for the removal of the socket, milliseconds. */
const closeMs = 2_000;

/** Pauses before a retry, milliseconds: on an unreachable target, and on one that refuses. */
const retryMs = 5_000;
const refusedRetryMs = 60_000;

async function untilDone(
  { directory, clock, log }: Serving,
  step: () => Promise<unknown>,
  signal: AbortSignal,
): Promise<void> {
  for (let told = ""; !signal.aborted; ) {
    try {
      return void (await step());
    } catch (err) {
      if (signal.aborted) return;
      const why = messageOf(err);
      if (why !== told)
        log.warn({ err, socket: directory.socket }, "device plugins cannot register on this node yet, will try again");
      told = why;
      const ms = hasCode(err, "unavailable", "deadline_exceeded") ? retryMs : refusedRetryMs;
      await clock.sleep(ms, signal).catch(() => undefined);
    }
  }
}
