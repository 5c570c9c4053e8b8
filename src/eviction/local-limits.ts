import type { Clock } from "../lib/clock.ts";
import type { PodStore, PodCache, VolumeMounter } from "../pipeline.ts";
import { isCritical } from "../pod/containers.ts";
import { isTerminal } from "../pod/phase.ts";
import type { Evict, EvictedPod } from "./evict.ts";
import { firstExceededLimit, storageLimits, type StorageLimits, type StorageUsage } from "./storage-limits.ts";
import type { DiskLayout } from "./thresholds.ts";
import type { DiskMeter } from "../host/disk-meter.ts";
import type { Pod } from "../objects.ts";
import { ephemeralFiles, isEphemeral, layerKey, newestLayers } from "../pod/ephemeral-files.ts";
import { podUidLabel } from "../pod/labels.ts";
import { isRunning, newestRun } from "../pod/runs.ts";
import type { Stats } from "../seams/runtime.ts";

export interface LocalLimitsDeps extends StorageUsageDeps {
  readonly desired: Pick<PodStore, "list">;
  readonly evict: Evict;
  readonly clock: Clock;
}

/** Evicts pods whose disk usage exceeds their limits; shortens the grace period of terminating ones. @returns the evicted
 *  pods, including those still terminating. */
export type EnforceLocalLimits = (disks: DiskLayout | undefined, signal: AbortSignal) => Promise<readonly EvictedPod[]>;

/** Pause after a walk: this many times its duration, capped. Walks over millions of files load the machine. */
const pauseFactor = 10;
const maxPauseMs = 300_000;
const graceSeconds = 1;

/** Enforces local storage limits. Costs nothing while no pod has a limit.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-storage/#resource-emphemeralstorage-consumption */
export function createLocalLimits(deps: LocalLimitsDeps): EnforceLocalLimits {
  const { desired, evict, clock } = deps;
  const measure = createStorageUsage(deps);
  let notBefore = Number.NEGATIVE_INFINITY;
  return async (disks, signal) => {
    if (clock.monotonic() < notBefore) return [];
    const limited = desired.list().flatMap((pod) => {
      const limits = isTerminal(pod.status?.phase) || isCritical(pod) ? undefined : storageLimits(pod);
      return limits ? [{ pod, limits }] : [];
    });
    if (limited.length === 0) return [];
    const began = clock.monotonic();
    // Layers on a separate file system do not count towards a container's limit, which applies to the node's file system.
    const usages = await measure(limited, { layersCount: !disks?.dedicatedImageFs }, signal);
    const ended = clock.monotonic();
    notBefore = ended + Math.min(pauseFactor * (ended - began), maxPauseMs);
    return limited.flatMap(({ pod, limits }, index) => {
      const usage = usages[index];
      const excess = usage && firstExceededLimit(limits, usage);
      const evicted = excess && evict(pod, { ...excess, graceSeconds });
      return evicted ? [evicted] : [];
    });
  };
}

interface StorageUsageDeps {
  readonly disk: Pick<DiskMeter, "bytes">;
  readonly runtime: Pick<Stats, "listContainerStats">;
  readonly volumes: Pick<VolumeMounter, "mounted">;
  readonly podCache: Pick<PodCache, "get">;
  /** The target's root directory. */
  readonly rootDir: string;
  /** KubeletConfiguration.podLogsDir. */
  readonly podLogsDir: string;
}

interface LimitedPod {
  readonly pod: Pod;
  readonly limits: StorageLimits;
}

/** Maximum age of reused measurements, milliseconds: less than the interval between checks. */
const maxAgeMs = 5_000;

/** Measures the pods' disk usage on the target in one walk, limited to paths with a limit. */
function createStorageUsage(deps: StorageUsageDeps) {
  /** @param options.layersCount true if containers' layers count towards their limits.
   *  @returns the usage of each pod, in the given order. */
  return async (
    pods: readonly LimitedPod[],
    { layersCount }: { readonly layersCount: boolean },
    signal: AbortSignal,
  ): Promise<readonly StorageUsage[]> => {
    const bounded = pods.filter(({ limits }) => limits.pod);
    const places = pods.map((limited) => podPathsOf(deps, limited));
    const paths = places.flatMap(({ volumes, logs, hostsFile }, index) => [
      ...volumes.values(),
      ...(pods[index]?.limits.pod ? [...logs.values(), hostsFile] : []),
    ]);
    const [used, layers] = await Promise.all([
      deps.disk.bytes(paths, maxAgeMs, signal),
      bounded.length > 0 ? readLayers(deps, bounded, signal) : new Map<string, number>(),
    ]);
    return pods.map(({ pod }, index) => {
      const { volumes, inMemory, logs, hostsFile } = places[index] ?? podPathsOf(deps, { pod });
      const at = (path: string) => used.get(path) ?? 0;
      const layer = (name: string) => layers.get(layerKey(pod.metadata.uid, name)) ?? 0;
      const names = [...logs.keys()];
      const onDisk = [...volumes].filter(([name]) => !inMemory.has(name)).map(([, path]) => path);
      return {
        volumes: new Map([...volumes].map(([name, path]) => [name, at(path)])),
        containers: new Map([...logs].map(([name, path]) => [name, at(path) + (layersCount ? layer(name) : 0)])),
        pod: total([...onDisk, ...logs.values(), hostsFile].map(at)) + total(names.map(layer)),
      };
    });
  };
}

function total(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

/** Paths of a pod to measure: volumes with their own limit, all volumes on disk if the whole pod has a limit, and logs. */
function podPathsOf(
  { volumes, podCache, ...roots }: StorageUsageDeps,
  { pod, limits }: Pick<LimitedPod, "pod"> & Partial<LimitedPod>,
) {
  const { uid } = pod.metadata;
  const mounted = volumes.mounted(uid);
  const seen = podCache.get(uid);
  const { logs, hostsFile } = ephemeralFiles(pod, roots);
  const counted = (pod.spec.volumes ?? []).filter(
    (volume) => limits?.volumes.has(volume.name) || (limits?.pod && isEphemeral(volume)),
  );
  return {
    volumes: new Map(
      counted.flatMap(({ name }) => {
        const path = mounted.get(name)?.hostPath;
        return path === undefined ? [] : [[name, path] as const];
      }),
    ),
    /** Names of the memory volumes, which do not count as disk usage. */
    inMemory: new Set(counted.filter(({ emptyDir }) => emptyDir?.medium).map(({ name }) => name)),
    /** Logs of running containers: those of terminated ones do not count. (kubelet) */
    logs: new Map([...logs].filter(([name]) => newestRun(seen, name, isRunning) !== undefined)),
    hostsFile,
  };
}

/** Sizes of the containers' writable layers, by `layerKey`. One call. */
async function readLayers(
  { runtime }: StorageUsageDeps,
  bounded: readonly LimitedPod[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  const [only] = bounded;
  const one = only && bounded.length === 1 ? { [podUidLabel]: only.pod.metadata.uid } : undefined;
  const all = await runtime.listContainerStats(one && { id: "", podSandboxId: "", labelSelector: one }, signal);
  return new Map([...newestLayers(all)].map(([key, { usedBytes }]) => [key, Number(usedBytes?.value ?? 0n)]));
}
