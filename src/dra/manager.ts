import type { ApiClient } from "../api/client.ts";
import { messageOf, throwIfAborted } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { retryUntilDone } from "../lib/retry.ts";
import { type Runnable, onceThenIdle } from "../lib/runnables.ts";
import { timed } from "../lib/timed.ts";
import type { DynamicResource } from "../gen/pod-resources.ts";
import type { Container, Pod, ResourceClaim } from "../objects.ts";
import type { PluginHandler } from "../plugins/ports.ts";
import { type ResourceManager, noAdditions } from "../resource-manager.ts";
import type { Host, HostFs } from "../seams/host.ts";
import { createClaimCheckpoint } from "./checkpoint.ts";
import { claimUsesOf } from "./claim-names.ts";
import { type ClaimRecords, cdiDevicesOf, createClaimRecords, podsWithDevices } from "./claim-records.ts";
import { claimHealth, dynamicResources } from "./container-claims.ts";
import { createDeviceHealthRecords } from "./device-health.ts";
import type { DraMeasures } from "./driver-client.ts";
import { type DriverRegistryDeps, createDraDriverRegistry } from "./driver-registry.ts";
import { type PreparationDeps, prepareClaims, unprepareClaims } from "./preparation.ts";
import { createSliceCleanup } from "./slice-cleanup.ts";

export interface DraManagerDeps extends ClockAndLog {
  readonly host: Pick<Host, "dial" | "budget"> & { readonly fs: Pick<HostFs, "readFile" | "apply"> };
  readonly client: Pick<ApiClient, "get" | "delete">;
  readonly nodeName: string;
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
  /** True once every source has listed its pods. */
  readonly sourcesSynced: () => boolean;
  /** True for a pod that a source wants or a worker handles. */
  readonly isKnown: (uid: string) => boolean;
  /** How the health of devices is shown; undefined if it is not shown. */
  readonly health: DeviceHealthSettings | undefined;
  readonly measures: DraMeasures;
}

export interface DeviceHealthSettings {
  /** True if the drivers' messages are shown as well. */
  readonly withMessages: boolean;
  /** Called with the UID of each pod with a device whose health has changed. */
  readonly onChange: (uid: string) => void;
}

/** The claims of pods on this node. */
export interface DraManager extends ResourceManager {
  /** Handles the registration of drivers. */
  readonly handler: PluginHandler;
  /** Devices of a container's claims, for the PodResources API. */
  dynamicResources(pod: Pod, container: Container): readonly DynamicResource[];
}

/** How often to look for claims of pods that no longer exist, in milliseconds; same as the kubelet. */
const reconcileIntervalMs = 60_000;
/** Delay before the checkpoint is read again while the target is unreachable, milliseconds. */
const loadRetryDelayMs = 5_000;

/** Manager of ResourceClaims: the scheduler allocates devices, drivers on the target prepare them for pods.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/ */
export function createDraManager(deps: DraManagerDeps): DraManager {
  const { host, client, nodeName, rootDir, clock, log } = deps;
  const records = createClaimRecords();
  deps.measures.claimsInUse(() => records.all().map((claim) => [...claim.drivers.keys()]));
  const store = createClaimCheckpoint(host.fs, rootDir, records, log);
  const slices = createSliceCleanup({ client, nodeName, clock, log });
  const health = createDeviceHealthRecords(clock);
  const onHealth: DriverRegistryDeps["onHealth"] = (driver, devices) => {
    const changed = devices ? health.update(driver, devices) : health.remove(driver);
    for (const uid of podsWithDevices(records, driver, changed)) deps.health?.onChange(uid);
  };
  const drivers = createDraDriverRegistry({
    host,
    measures: deps.measures,
    onUsable: slices.setUsable,
    onHealth: deps.health && onHealth,
    clock,
    log,
  });
  const preparation: PreparationDeps = {
    records,
    claim: (namespace, name, signal) =>
      client.get<ResourceClaim>(`/apis/resource.k8s.io/v1/namespaces/${namespace}/resourceclaims/${name}`, { signal }),
    driver: drivers.driver,
    save: store.save,
  };
  const loading = {
    message: "cannot read the checkpoint of ResourceClaims; retrying",
    delayMs: () => loadRetryDelayMs,
    clock,
    log,
  };
  const measured = createOperation(deps);
  const unprepare = (uid: string, signal: AbortSignal) => unprepareClaims(preparation, uid, signal);
  return {
    name: "dra",
    handler: drivers.handler,
    allocatable: () => ({}),
    async preparePod(pod, signal) {
      if (!usesClaims(pod)) return;
      await store.loaded(signal);
      await measured("PrepareResources", "prepare", () => prepareClaims(preparation, pod, signal), signal);
    },
    async unpreparePod(uid, signal) {
      await store.loaded(signal);
      if (records.ofPod(uid).length === 0) return;
      await measured("UnprepareResources", "unprepare", () => unprepare(uid, signal), signal);
    },
    async prepareContainer(pod, container, signal) {
      const uses = claimUsesOf(pod, container);
      if (uses.length === 0) return undefined;
      await store.loaded(signal);
      const cdiDevices = uses.flatMap(({ name, request }) => {
        const { namespace } = pod.metadata;
        const record = records.get(namespace, name);
        if (record) return cdiDevicesOf(record, request);
        throw new Error(`internal error: unable to get claim info for ResourceClaim ${name} in namespace ${namespace}`);
      });
      return { ...noAdditions, cdiDevices };
    },
    release() {},
    health: (pod, name) => (deps.health ? claimHealth({ records, health }, pod, name, deps.health.withMessages) : []),
    dynamicResources: (pod, container) => dynamicResources(records, pod, container),
    runnables: [
      onceThenIdle("resource claims", async (signal) => {
        await retryUntilDone(loading, () => store.load(signal), signal);
        return drivers.close;
      }),
      slices,
      releaseOfUnknown(deps, records, unprepare),
    ],
  };
}

/** Releases claims of pods that ended while graftlet did not run. */
function releaseOfUnknown(
  { sourcesSynced, isKnown, clock, log }: DraManagerDeps,
  records: Pick<ClaimRecords, "all">,
  unprepare: (uid: string, signal: AbortSignal) => Promise<void>,
): Runnable {
  const options = { name: "release of resource claims", intervalMs: reconcileIntervalMs, clock, log };
  return runPeriodically(options, async (signal) => {
    if (!sourcesSynced()) return;
    const pods = new Set(records.all().flatMap((record) => [...record.pods]));
    for (const uid of [...pods].filter((pod) => !isKnown(pod)))
      await unprepare(uid, signal).catch((err: unknown) => {
        throwIfAborted(signal);
        log.info({ err, uid }, "cannot release the claims of a pod that no longer exists; retrying");
      });
  });
}

function usesClaims({ spec, status }: Pod): boolean {
  return (spec.resourceClaims ?? []).length > 0 || status?.extendedResourceClaimStatus !== undefined;
}

/** Creates a function that measures an operation, and names it in its failure. */
function createOperation({ clock, measures }: Pick<DraManagerDeps, "clock" | "measures">) {
  return async (
    name: Parameters<DraMeasures["operation"]>[0],
    verb: "prepare" | "unprepare",
    work: () => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> => {
    try {
      await timed(clock, work, (ms, failed) => {
        if (!failed || !signal.aborted) measures.operation(name, failed, ms);
      });
    } catch (error) {
      throwIfAborted(signal);
      throw new Error(`${verb} dynamic resources: ${messageOf(error)}`, { cause: error });
    }
  };
}
