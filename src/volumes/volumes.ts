import { createMountLister } from "../host/mounts.ts";
import type { Clock, Timer } from "../lib/clock.ts";
import { createBackoff } from "../lib/backoff.ts";
import { coalesce } from "../lib/coalesce.ts";
import { hasCode, throwIfAborted } from "../lib/errors.ts";
import { createSharedPromise } from "../lib/single-flight.ts";
import { timed } from "../lib/timed.ts";
import type { Pod, Volume } from "../objects.ts";
import type { MountedVolumes, VolumeMounter, WaitForTarget } from "../pipeline.ts";
import { referencedObjects } from "../pod/object-references.ts";
import { migratedTypeOf, claimNameOf } from "../pod/migrated-volume.ts";
import { volumePlugin } from "../pod/volume-plugin.ts";
import type { StableFiles, SubPathMounts } from "../runtime/ports.ts";
import type { VolumeDeps } from "./plugins/plugin.ts";
import { createVolumeExpander } from "./expander.ts";
import { createSubPathMounts } from "./subpath-mounts.ts";
import { createExpansionStates } from "./persistent/expansion-states.ts";
import { unmounters } from "./persistent/index.ts";
import { createCsiVolumeLister } from "./persistent/csi-volume-lister.ts";
import { createPersistentVolumeStates } from "./persistent/volume-states.ts";
import { createVolumeWaiter } from "./wait-for-volumes.ts";
import { usedVolumes } from "./paths.ts";
import {
  type PodVolumes,
  type SetUp,
  type SharedVolumeState,
  createSetUp,
  maxRetryDelayMs,
  newPodVolumes,
} from "./set-up.ts";
import { createSelinuxMounts } from "./selinux-mounts.ts";
import { listPodDirectories, removePodDirectory, unmountAll } from "./teardown.ts";
import type { Logger } from "../lib/log.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";

/** Timeout of listing the pod directories, milliseconds. */
const listTimeoutMs = 60_000;
/** Delays between the first attempts to unpublish the volumes of a pod, milliseconds: a driver that starts with the node, or
 *  still works on the volume, is ready soon. The caller's own retries are further apart. */
const tearDownRetryDelaysMs = [500, 1_000, 2_000, 4_000] as const;
/** Shortest interval between refreshes of a token, milliseconds. */
const minRefreshDelayMs = 1_000;
/** Delay between refreshes of a pod caused by changed objects, milliseconds: doubled from the first value to the last while
 *  changes keep coming. A kubelet also shows changes only about once a minute. */
const minChangeDelayMs = 1_000;
const maxChangeDelayMs = 10_000;

export interface Volumes extends VolumeMounter, SubPathMounts, StableFiles {
  /** Called when a ConfigMap or Secret changed: volumes made from it are refreshed at once, or within seconds while changes keep
   *  coming. */
  objectChanged(kind: "configmap" | "secret", namespace: string, name: string): void;
  /** Called when something else changed that a pod's volumes are made from; they are refreshed likewise. */
  sourceChanged(uid: string): void;
  /** UIDs of pods that have a directory on the target. */
  podDirectories(signal: AbortSignal): Promise<readonly string[]>;
  /** Removes the directory of a pod whose volumes are unmounted. */
  removePodDirectory(uid: string, signal: AbortSignal): Promise<void>;
  /** Reconstructs the state of volumes that a previous process left on the node. @throws if the target cannot be read. */
  recover(signal: AbortSignal): Promise<void>;
  /** Cancels all waits and timers. */
  stop(): void;
}

/** The volumes of pods on the target. @see https://kubernetes.io/docs/concepts/storage/volumes/ */
export function createVolumes(deps: VolumeDeps): Volumes {
  const pods = new Map<string, PodVolumes>();
  const volumeStates = createPersistentVolumeStates(
    { ...deps, listVolumes: createCsiVolumeLister(deps), onInUseChange: deps.onVolumesInUse },
    unmounters,
  );
  const selinuxMounts = createSelinuxMounts(deps);
  const shared = { ...deps, volumeStates, selinuxMounts, expansionStates: createExpansionStates(volumeStates) };
  const tearDown = createPodTeardown(deps, shared);
  const setUp = createSetUp(shared);
  const expander = createVolumeExpander(shared);
  const waitForVolumes = createVolumeWaiter(deps, setUp);
  const refresher = createRefresher(deps, pods, setUp);

  const directories = createDirectoryIndex(deps);
  const mounted = (uid: string): MountedVolumes => pods.get(uid)?.mounted ?? new Map();

  const stateOf = async (pod: Pod, signal: AbortSignal): Promise<PodVolumes> => {
    const { uid } = pod.metadata;
    const fresh = !pods.has(uid) && (await directories.isFresh(uid, signal));
    const state = pods.get(uid) ?? newPodVolumes(pod, fresh);
    state.pod = pod;
    pods.set(uid, state);
    directories.add(uid);
    return state;
  };

  return {
    async mount(pod, signal) {
      const state = await stateOf(pod, signal);
      await waitForVolumes(state, signal);
      refresher.schedule(state);
      expander.check(state);
      return state.mounted;
    },
    mounted,
    async withStableFiles(uid, work) {
      const state = pods.get(uid);
      return state ? state.serializeFileChanges(work) : work();
    },
    ...createSubPathMounts(deps, mounted),
    async unmount(uid, signal) {
      refresher.cancel(uid);
      const state = pods.get(uid);
      if (state) await setUp.cancel(state, signal);
      pods.delete(uid);
      await tearDown(uid, state, signal);
      expander.forgetUnused();
    },
    objectChanged(kind, namespace, name) {
      for (const state of pods.values()) {
        if (state.pod.metadata.namespace !== namespace || refresher.isDelayed(state)) continue;
        const { secrets, configMaps } = referencedObjects(state.pod);
        if ((kind === "secret" ? secrets : configMaps).includes(name)) refresher.objectChanged(state);
      }
    },
    sourceChanged(uid) {
      const state = pods.get(uid);
      if (state) refresher.objectChanged(state);
    },
    podDirectories: (signal) => listPodDirectories(deps.host, deps.rootDir, signal),
    async removePodDirectory(uid, signal) {
      await removePodDirectory(deps.host, deps.rootDir, uid, signal);
      if (!pods.has(uid)) directories.delete(uid);
    },
    recover: volumeStates.recover,
    stop() {
      refresher.stop();
      volumeStates.stop();
      for (const state of pods.values()) state.ended.abort();
    },
  };
}

/** Unmounts all volumes of a pod at once and records the duration for each. The caller retries a failure. */
function createPodTeardown(
  deps: VolumeDeps,
  { volumeStates, selinuxMounts }: Pick<SharedVolumeState, "volumeStates" | "selinuxMounts">,
) {
  const { host, rootDir, measures, clock } = deps;
  const list = createMountLister(host);
  /** Plugins of the mounted volumes, by the pod's UID, kept until the teardown succeeds. */
  const pluginsByPod = new Map<string, readonly MountedPlugin[]>();
  return async (uid: string, state: PodVolumes | undefined, signal: AbortSignal): Promise<void> => {
    if (state) pluginsByPod.set(uid, mountedPlugins(state));
    const unpublish = unpublishing(deps, uid, state, signal);
    const options = { list, isEphemeral: state !== undefined && isEphemeral(state), ...(unpublish && { unpublish }) };
    await timed(
      clock,
      () => retryWhileUnavailable(clock, () => unmountAll(host, rootDir, uid, signal, options), signal),
      (ms, failed) => {
        for (const { plugin, isDevice } of pluginsByPod.get(uid) ?? [])
          measures[isDevice ? "unmapped" : "tornDown"](plugin, ms, failed);
        if (!failed) pluginsByPod.delete(uid);
      },
    );
    selinuxMounts.release(uid);
    await volumeStates.releasePod(uid, state !== undefined && isFullyKnown(state), signal);
  };
}

/** Retries while a driver is unavailable or busy. */
async function retryWhileUnavailable(clock: Clock, work: () => Promise<void>, signal: AbortSignal): Promise<void> {
  for (const pauseMs of tearDownRetryDelaysMs) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted || !hasCode(error, "unavailable", "conflict")) throw error;
      await clock.sleep(pauseMs, signal);
    }
  }
  await work();
}

/** Unpublishes the volumes of a pod that need more than an unmount; undefined if the pod has none. */
function unpublishing(deps: VolumeDeps, uid: string, state: PodVolumes | undefined, signal: AbortSignal) {
  const mayHave = (plugin: string) =>
    !state ||
    !isFullyKnown(state) ||
    mountedPlugins(state).some((one) => one.plugin === plugin || one.plugin.startsWith(`${plugin}:`));
  const unpublishers = unmounters.flatMap(({ pluginName, unpublish }) =>
    unpublish && mayHave(pluginName) ? [unpublish] : [],
  );
  if (unpublishers.length === 0) return undefined;
  return async () => (await Promise.all(unpublishers.map((unpublish) => unpublish(deps, uid, signal)))).flat();
}

interface MountedPlugin {
  readonly plugin: string;
  readonly isDevice: boolean;
}

function mountedPlugins({ pod, mounted }: PodVolumes): readonly MountedPlugin[] {
  return (pod.spec.volumes ?? []).flatMap((volume) => {
    const ready = mounted.get(volume.name);
    if (!ready) return [];
    const { persistent } = ready;
    return [{ plugin: persistent?.plugin ?? volumePlugin(volume), isDevice: persistent?.isDevice === true }];
  });
}

/** True if the persistent volume of each claim is known, and each inline volume of a CSI driver is mounted. */
function isFullyKnown({ pod, mounted }: PodVolumes): boolean {
  const isElsewhere = (volume: Volume) =>
    claimNameOf(pod, volume) !== undefined || volume.csi !== undefined || migratedTypeOf(volume) !== undefined;
  return usedVolumes(pod).every((volume) => !isElsewhere(volume) || mounted.has(volume.name));
}

/** True if none of a pod's volumes outlives it. */
function isEphemeral(state: PodVolumes): boolean {
  const { pod, mounted } = state;
  return isFullyKnown(state) && usedVolumes(pod).every(({ name, csi }) => !csi && !mounted.get(name)?.persistent);
}

/** Pods that may have left something on the target: those whose directory existed when this node first listed them, and those
 *  that it set up itself. A pod that is not among them needs no search for leftovers. */
function createDirectoryIndex({ host, rootDir, clock }: VolumeDeps) {
  const found = new Set<string>();
  const shared = createSharedPromise<void>(clock, listTimeoutMs);
  let isListed = false;
  const list = async (signal: AbortSignal) => {
    for (const uid of await listPodDirectories(host, rootDir, signal)) found.add(uid);
    isListed = true;
  };
  return {
    async isFresh(uid: string, signal: AbortSignal): Promise<boolean> {
      if (!isListed) await shared(list, signal).catch(() => throwIfAborted(signal));
      return isListed && !found.has(uid);
    },
    add: (uid: string) => void found.add(uid),
    delete: (uid: string) => void found.delete(uid),
  };
}

interface PodRefreshes {
  /** Refreshes all volumes: one run at a time, and at most one more waits for its end. */
  readonly run: () => Promise<void>;
  /** Fires when a token is due for renewal, or to retry a failed refresh. */
  refreshTimer: Timer | undefined;
  /** Fires when rate-limited changes of objects are to be handled together. */
  changeTimer: Timer | undefined;
}

/** Refreshes volumes of running pods when an object changes or a token is due for renewal. A change after a quiet period is
 *  handled at once; while changes keep coming, the pod's refreshes are rate-limited, and the last one always sees the newest
 *  objects. */
function createRefresher({ clock, log }: VolumeDeps, current: ReadonlyMap<string, PodVolumes>, setUp: SetUp) {
  const pods = new Map<string, PodRefreshes>();
  const changeBackoff = createBackoff({ clock, initialMs: minChangeDelayMs, maxMs: maxChangeDelayMs });
  const stopped = new AbortController();
  const isCurrent = (state: PodVolumes) =>
    current.get(state.pod.metadata.uid) === state && !state.ended.signal.aborted && !stopped.signal.aborted;
  const refreshesOf = (state: PodVolumes): PodRefreshes => {
    const { uid } = state.pod.metadata;
    const refreshes = pods.get(uid) ?? {
      run: coalesce(() => refresh(state)),
      refreshTimer: undefined,
      changeTimer: undefined,
    };
    pods.set(uid, refreshes);
    return refreshes;
  };
  const refreshAfter = (state: PodVolumes, delayMs: number) => {
    const refreshes = refreshesOf(state);
    refreshes.refreshTimer?.cancel();
    refreshes.refreshTimer = clock.after(delayMs, () => void refreshes.run());
  };
  const schedule = (state: PodVolumes) => {
    if (!isCurrent(state)) return;
    const due = [...state.mounted.values()].map(({ refreshAt }) => refreshAt).filter((time) => time !== undefined);
    if (due.length > 0) refreshAfter(state, Math.max(minRefreshDelayMs, Math.min(...due) - clock.now()));
  };
  const refresh = async (state: PodVolumes) => {
    if (!isCurrent(state)) return;
    const results = await Promise.allSettled(
      usedVolumes(state.pod).map((volume) => setUp.once(state, volume, stopped.signal)),
    );
    if (!isCurrent(state)) return;
    const failed = results.find((result) => result.status === "rejected");
    if (!failed) return schedule(state);
    log.warn({ err: failed.reason as unknown, uid: state.pod.metadata.uid }, "cannot refresh volume; retrying");
    refreshAfter(state, maxRetryDelayMs);
  };
  const handleChanges = (state: PodVolumes) => {
    const refreshes = refreshesOf(state);
    refreshes.changeTimer = undefined;
    changeBackoff.next(state.pod.metadata.uid);
    state.retryNow.abort();
    state.retryNow = new AbortController();
    if (state.mounted.size > 0) void refreshes.run();
  };
  return {
    schedule,
    /** True if a delayed refresh is scheduled, which will include this change. */
    isDelayed: ({ pod }: PodVolumes) => pods.get(pod.metadata.uid)?.changeTimer !== undefined,
    /** Handles the change of an object at once, or together with others if the pod's rate limit requires a delay. */
    objectChanged(state: PodVolumes) {
      if (!isCurrent(state)) return;
      const refreshes = refreshesOf(state);
      const pauseMs = changeBackoff.remaining(state.pod.metadata.uid);
      if (pauseMs <= 0) handleChanges(state);
      else refreshes.changeTimer ??= clock.after(pauseMs, () => handleChanges(state));
    },
    cancel(uid: string) {
      cancelTimers(pods.get(uid));
      pods.delete(uid);
      changeBackoff.reset(uid);
    },
    stop() {
      stopped.abort();
      for (const refreshes of pods.values()) cancelTimers(refreshes);
    },
  };
}

function cancelTimers(refreshes: PodRefreshes | undefined): void {
  refreshes?.refreshTimer?.cancel();
  refreshes?.changeTimer?.cancel();
}

interface VolumesServiceDeps {
  readonly volumes: Pick<Volumes, "recover" | "stop">;
  readonly waitForTarget: WaitForTarget | undefined;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Retry delay for reading the target's volumes, milliseconds. */
const retryDelayMs = 5_000;

/** Reconstructs volumes that an earlier process left on the node; stops the volume manager at the end. */
export function createVolumesService({ volumes, waitForTarget, clock, log }: VolumesServiceDeps): Runnable {
  const recover = async (signal: AbortSignal) => {
    for (let logged = false; !signal.aborted; logged = true) {
      try {
        await waitForTarget?.(signal);
        return await volumes.recover(signal);
      } catch (err) {
        if (signal.aborted) return;
        if (!logged) log.warn({ err }, "cannot reconstruct the node's volumes; retrying");
        await clock.sleep(retryDelayMs, signal).catch(() => undefined);
      }
    }
  };
  return {
    name: "volumes",
    run: (signal) => Promise.all([recover(signal), onAbort(signal).then(volumes.stop)]).then(() => undefined),
  };
}
