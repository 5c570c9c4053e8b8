import { type Backoff, createBackoff } from "../lib/backoff.ts";
import { coalesce } from "../lib/coalesce.ts";
import { CodedError, hasCode, isAbort, throwIfAborted } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import { timed } from "../lib/timed.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { createMountLister, kernelHasNoswap, shareDirectory } from "../host/mounts.ts";
import type { Pod, Volume } from "../objects.ts";
import { allContainers } from "../pod/containers.ts";
import { podReference } from "../pod/reference.ts";
import { volumePlugin } from "../pod/volume-plugin.ts";
import { VolumePendingError, UnprocessedVolumeError, mountFailureReason, mountFailureMessage } from "./failure.ts";
import { volumePluginFor } from "./plugins/index.ts";
import type { SetUpDeps, VolumeDeps, VolumePlugin, VolumeReady } from "./plugins/plugin.ts";
import { namesIn } from "./paths.ts";
import type { ExpansionStates } from "./persistent/expansion-states.ts";
import type { PersistentVolumeStates } from "./persistent/volume-states.ts";
import { podDirectory } from "../host/layout.ts";
import type { SelinuxMounts } from "./selinux-mounts.ts";

export type PodVolumes = ReturnType<typeof newPodVolumes>;

/** @param fresh true if nothing of the pod exists on the target. */
export function newPodVolumes(pod: Pod, fresh: boolean) {
  return {
    pod,
    /** Volumes that may already exist on the target; undefined if any may. */
    mayExist: fresh ? new Set<string>() : undefined,
    mounted: new Map<string, VolumeReady>(),
    /** Set-up function of each volume by name. It runs once at a time: two writers in one directory would undo each other's work. */
    setUps: new Map<string, () => Promise<void>>(),
    /** Volumes that wait to be attached, each with a check for the attachment limit of the node. */
    unattached: new Map<string, (signal: AbortSignal) => Promise<boolean>>(),
    /** Serializes container starts and replacements of files that a start may read. */
    serializeFileChanges: createSemaphore(1),
    /** Work in progress. */
    running: new Set<Promise<unknown>>(),
    /** Aborted to end the pause between retries, so that a changed object is tried at once. */
    retryNow: new AbortController(),
    /** Aborted when the volumes are torn down: nothing may be created any more. */
    ended: new AbortController(),
  };
}

/** Tracks work on a pod's volumes, which tearing them down waits for. @returns the work. */
export function trackWork<T>({ running }: PodVolumes, work: Promise<T>): Promise<T> {
  const forget = () => void running.delete(settled);
  const settled: Promise<unknown> = work.then(forget, forget);
  running.add(settled);
  return work;
}

/** Retry delays of a failed volume, milliseconds: the kubelet's. */
export const initialRetryDelayMs = 500;
export const maxRetryDelayMs = 122_000;
/** Maximum retry delay if the API server or the target failed rather than the volume: either may recover any moment. */
const maxTransientRetryDelayMs = 3_000;
const transientCodes = ["unavailable", "deadline_exceeded", "resource_exhausted"] as const;
/** Timeout of one attempt, milliseconds: an unresponsive API server does not delay later attempts. */
export const attemptTimeoutMs = 123_000;

export type SetUp = ReturnType<typeof createSetUp>;

/** State of persistent volumes, shared by all pods. */
export interface SharedVolumeState {
  readonly volumeStates: PersistentVolumeStates;
  readonly expansionStates: ExpansionStates;
  readonly selinuxMounts: SelinuxMounts;
}

/** Sets up volumes with their plugins; each failure is reported as an event and retried with back-off. */
export function createSetUp(shared: VolumeDeps & SharedVolumeState) {
  const { clock, log } = shared;
  let noswap: boolean | undefined;
  const deps: CommonDeps = {
    ...shared,
    contentDigests: new Map<string, string>(),
    mounts: createMountLister(shared.host),
    noswap: async (signal) => (noswap ??= await kernelHasNoswap(shared.host, signal)),
  };
  const retries = createBackoff({ clock, initialMs: initialRetryDelayMs, maxMs: maxRetryDelayMs });

  const attempt = createAttempt(deps, retries);

  /** Sets up a volume that is not ready, or refreshes it. The attempt continues if the signal aborts; only tearing down the
   *  pod's volumes stops it.
   *  @throws an error with the text of the event. */
  const once = async (state: PodVolumes, volume: Volume, signal: AbortSignal) => {
    const setUp = state.setUps.get(volume.name) ?? coalesce(() => attempt(state, volume));
    state.setUps.set(volume.name, setUp);
    await untilAborted(trackWork(state, setUp()), signal);
  };

  return {
    once,
    /** Retries until success or until the signal aborts. Returns without success if the volume was mounted before.
     *  @throws UnprocessedVolumeError at once for a claim without a usable volume. */
    async untilReady(state: PodVolumes, volume: Volume, signal: AbortSignal) {
      while (!signal.aborted && !state.ended.signal.aborted) {
        // Read before the attempt, so that a change during it is not missed.
        const retryRequested = state.retryNow.signal;
        try {
          return await once(state, volume, signal);
        } catch (error) {
          if (state.mounted.has(volume.name)) return;
          if (error instanceof UnprocessedVolumeError) throw error;
          log.debug({ err: error, uid: state.pod.metadata.uid, volume: volume.name }, "volume is not ready; retrying");
          const pause = retries.remaining(retryKey(state, volume));
          const longest = hasCode(error, ...transientCodes) ? maxTransientRetryDelayMs : maxRetryDelayMs;
          await clock.sleep(Math.min(pause, longest), AbortSignal.any([signal, retryRequested])).catch(() => undefined);
        }
      }
    },
    /** Cancels a pod's set-ups, and forgets the content digests of its directories. */
    async cancel(state: PodVolumes, signal: AbortSignal) {
      state.ended.abort();
      await untilAborted(Promise.all(state.running), signal);
      for (const { name } of state.pod.spec.volumes ?? []) retries.reset(`${state.pod.metadata.uid}/${name}`);
      const below = `${podDirectory(deps.rootDir, state.pod.metadata.uid)}/`;
      for (const path of deps.contentDigests.keys()) if (path.startsWith(below)) deps.contentDigests.delete(path);
    },
  };
}

/** Dependencies that the volumes of all pods share. */
type CommonDeps = Omit<SetUpDeps, "fresh" | "onAwaitingAttach" | "replaceFiles">;

/** One attempt at one volume, never two at once. An attempt interrupted by the loss of the target is repeated once it is back. */
function createAttempt(deps: CommonDeps, retries: Backoff) {
  return async function attempt(state: PodVolumes, volume: Volume): Promise<void> {
    const { signal: ended } = state.ended;
    const plugin = volumePluginFor(volume);
    const current = state.mounted.get(volume.name);
    if (current && !plugin?.refreshes && current.refreshAt === undefined) return;
    const lost = deps.waitForTarget && (await deps.waitForTarget(ended));
    try {
      throwIfAborted(ended);
      if (!plugin) throw new CodedError("unimplemented", `no volume plugin matched: ${volume.name}`);
      const attemptSignal = deps.clock.within(attemptTimeoutMs, lost ? AbortSignal.any([ended, lost]) : ended);
      const fresh = state.mayExist?.has(volume.name) === false;
      state.mayExist?.add(volume.name);
      const onAwaitingAttach: SetUpDeps["onAwaitingAttach"] = (isExhausted) => {
        if (isExhausted) state.unattached.set(volume.name, isExhausted);
        else state.unattached.delete(volume.name);
      };
      const own = { fresh, onAwaitingAttach, replaceFiles: state.serializeFileChanges };
      const ready = await setUpTimed(plugin, { ...deps, ...own }, { pod: state.pod, volume }, attemptSignal);
      if (!state.mounted.has(volume.name) && isPropagated(state.pod, volume, ready))
        await shareDirectory(deps.host, ready.hostPath, attemptSignal);
      state.mounted.set(volume.name, ready);
      retries.reset(retryKey(state, volume));
    } catch (error) {
      if (ended.aborted) throw error;
      if (lost?.aborted) return attempt(state, volume);
      if (error instanceof UnprocessedVolumeError || error instanceof VolumePendingError) throw error;
      retries.next(retryKey(state, volume));
      // The node is stopping: the target already rejects changes, although the pod's volumes have not ended.
      if (isAbort(error)) throw error;
      deps.events.event(
        podReference(state.pod),
        "Warning",
        mountFailureReason(error),
        mountFailureMessage(volume.name, error),
      );
      throw error;
    }
  };
}

/** True if a container's mount propagates from or to the host. hostPath directories keep the propagation that the host gave
 *  them. */
function isPropagated(pod: Pod, { name, hostPath }: Volume, { persistent }: VolumeReady): boolean {
  if (hostPath || persistent?.plugin === "kubernetes.io/host-path") return false;
  return allContainers(pod).some(({ container }) =>
    container.volumeMounts?.some((mount) => mount.name === name && (mount.mountPropagation ?? "None") !== "None"),
  );
}

async function setUpTimed(
  plugin: VolumePlugin,
  deps: SetUpDeps,
  { pod, volume }: { readonly pod: Pod; readonly volume: Volume },
  signal: AbortSignal,
): Promise<VolumeReady> {
  const { clock, measures } = deps;
  let pluginName = volumePlugin(volume);
  const isDevice = namesIn(pod, "volumeDevices").has(volume.name);
  return timed(
    clock,
    async () => {
      const ready = await plugin.setUp(deps, pod, volume, signal);
      pluginName = ready.persistent?.plugin ?? pluginName;
      return ready;
    },
    (ms, failed) => measures[isDevice ? "mapped" : "setUp"](pluginName, ms, failed),
  );
}

function retryKey({ pod }: PodVolumes, volume: Volume): string {
  return `${pod.metadata.uid}/${volume.name}`;
}
