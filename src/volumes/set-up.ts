import { type Backoff, createBackoff } from "../lib/backoff.ts";
import { coalesce } from "../lib/coalesce.ts";
import { CodedError, hasCode, throwIfAborted } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import { timed } from "../lib/timed.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { hasSelinux } from "../host/exists.ts";
import { createMountLister, kernelHasNoswap, shareDirectory } from "../host/mounts.ts";
import type { Pod, Volume } from "../objects.ts";
import { allContainers } from "../pod/containers.ts";
import { podReference } from "../pod/reference.ts";
import { volumePlugin } from "../pod/volume-plugin.ts";
import { NotYetError, UnprocessedError, failureReason, mountFailure } from "./failure.ts";
import { kindOf } from "./kinds/index.ts";
import type { SetUpDeps, VolumeDeps, VolumeKind, VolumeReady } from "./kinds/kind.ts";
import { namesIn, podDirectory } from "./paths.ts";
import type { Growths } from "./persistent/growths.ts";
import type { Staging } from "./persistent/staging.ts";

/** State of a pod's volumes. */
export interface PodVolumes {
  pod: Pod;
  readonly mounted: Map<string, VolumeReady>;
  /** Set-up function of each volume by name. It runs once at a time: two writers in one directory would undo each other's work. */
  readonly setUps: Map<string, () => Promise<void>>;
  /** Volumes that may already exist on the target; undefined if any may. */
  readonly touched: Set<string> | undefined;
  /** Volumes that wait to be attached, each with a check for the attachment limit of the node. */
  readonly unattached: Map<string, (signal: AbortSignal) => Promise<boolean>>;
  /** Serializes container starts and replacements of files that a start may read. */
  readonly filesInTurn: <T>(work: () => Promise<T>) => Promise<T>;
  /** Work in progress. */
  readonly running: Set<Promise<unknown>>;
  /** Aborted to end the pause between retries, so that a changed object is tried at once. */
  kick: AbortController;
  /** Aborted when the volumes are torn down: nothing may be created any more. */
  readonly ended: AbortController;
}

/** @param fresh true if nothing of the pod exists on the target. */
export function newPodVolumes(pod: Pod, fresh: boolean): PodVolumes {
  return {
    pod,
    touched: fresh ? new Set<string>() : undefined,
    mounted: new Map<string, VolumeReady>(),
    setUps: new Map<string, () => Promise<void>>(),
    unattached: new Map<string, (signal: AbortSignal) => Promise<boolean>>(),
    filesInTurn: createSemaphore(1),
    running: new Set<Promise<unknown>>(),
    kick: new AbortController(),
    ended: new AbortController(),
  };
}

/** Tracks work on a pod's volumes, which tearing them down waits for. @returns the work. */
export function runs<T>({ running }: PodVolumes, work: Promise<T>): Promise<T> {
  const forget = () => void running.delete(settled);
  const settled: Promise<unknown> = work.then(forget, forget);
  running.add(settled);
  return work;
}

/** Retry delays of a failed volume, milliseconds: the kubelet's. */
export const firstRetryMs = 500;
export const longestRetryMs = 122_000;
/** Maximum retry delay if the API server or the target failed rather than the volume: either may recover any moment. */
const longestPassingMs = 3_000;
const passing = ["unavailable", "deadline_exceeded", "resource_exhausted"] as const;
/** Timeout of one attempt, milliseconds: an unresponsive API server does not delay later attempts. */
export const longestTryMs = 123_000;

export interface SetUp {
  /** Sets up a volume that is not ready, or refreshes it. The attempt continues if the signal aborts; only tearing down the
   *  pod's volumes stops it.
   *  @throws with the text of the event. */
  once(state: PodVolumes, volume: Volume, signal: AbortSignal): Promise<void>;
  /** Retries until success or until the signal aborts. Returns without success if the volume was mounted before.
   *  @throws UnprocessedVolumeError at once for a claim without a usable volume. */
  untilReady(state: PodVolumes, volume: Volume, signal: AbortSignal): Promise<void>;
  /** Cancels a pod's set-ups, and forgets the contents of its directories. */
  end(state: PodVolumes, signal: AbortSignal): Promise<void>;
}

/** State of persistent volumes, shared by all pods. */
export interface SharedState {
  readonly staging: Staging;
  readonly growths: Growths;
}

/** Sets up volumes with their plugins; each failure is reported as an event and retried with back-off. */
export function createSetUp(given: VolumeDeps & SharedState): SetUp {
  const { clock, log } = given;
  let noswap: boolean | undefined;
  let selinux: boolean | undefined;
  const deps: CommonDeps = {
    ...given,
    written: new Map<string, string>(),
    mounts: createMountLister(given.host),
    noswap: async (signal) => (noswap ??= await kernelHasNoswap(given.host, signal)),
    selinux: async (signal) => (selinux ??= await hasSelinux(given.host.fs, signal)),
  };
  const retries = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });

  const attempt = createAttempt(deps, retries);

  const once = async (state: PodVolumes, volume: Volume, signal: AbortSignal) => {
    const setUp = state.setUps.get(volume.name) ?? coalesce(() => attempt(state, volume));
    state.setUps.set(volume.name, setUp);
    await untilAborted(runs(state, setUp()), signal);
  };

  return {
    once,
    async untilReady(state, volume, signal) {
      while (!signal.aborted && !state.ended.signal.aborted) {
        // Read before the attempt, so that a change during it is not missed.
        const kicked = state.kick.signal;
        try {
          return await once(state, volume, signal);
        } catch (error) {
          if (state.mounted.has(volume.name)) return;
          if (error instanceof UnprocessedError) throw error;
          log.debug({ err: error, uid: state.pod.metadata.uid, volume: volume.name }, "volume is not ready; retrying");
          const pause = retries.remaining(keyOf(state, volume));
          const longest = hasCode(error, ...passing) ? longestPassingMs : longestRetryMs;
          await clock.sleep(Math.min(pause, longest), AbortSignal.any([signal, kicked])).catch(() => undefined);
        }
      }
    },
    async end(state, signal) {
      state.ended.abort();
      await untilAborted(Promise.all(state.running), signal);
      for (const { name } of state.pod.spec.volumes ?? []) retries.reset(`${state.pod.metadata.uid}/${name}`);
      const below = `${podDirectory(deps.rootDir, state.pod.metadata.uid)}/`;
      for (const path of deps.written.keys()) if (path.startsWith(below)) deps.written.delete(path);
    },
  };
}

/** Dependencies that the volumes of all pods share. */
type CommonDeps = Omit<SetUpDeps, "fresh" | "awaiting" | "replaceFiles">;

/** One attempt at one volume, never two at once. An attempt interrupted by the loss of the target is repeated once it is back. */
function createAttempt(deps: CommonDeps, retries: Backoff) {
  return async function attempt(state: PodVolumes, volume: Volume): Promise<void> {
    const { signal: ended } = state.ended;
    const kind = kindOf(volume);
    const standing = state.mounted.get(volume.name);
    if (standing && !kind?.refreshes && standing.refreshAt === undefined) return;
    const lost = deps.waitForTarget && (await deps.waitForTarget(ended));
    try {
      throwIfAborted(ended);
      if (!kind) throw new CodedError("unimplemented", `no volume plugin matched: ${volume.name}`);
      const patience = deps.clock.within(longestTryMs, lost ? AbortSignal.any([ended, lost]) : ended);
      const fresh = state.touched?.has(volume.name) === false;
      state.touched?.add(volume.name);
      const awaiting: SetUpDeps["awaiting"] = (isExhausted) => {
        if (isExhausted) state.unattached.set(volume.name, isExhausted);
        else state.unattached.delete(volume.name);
      };
      const own = { fresh, awaiting, replaceFiles: state.filesInTurn };
      const ready = await setUpTimed(kind, { ...deps, ...own }, { pod: state.pod, volume }, patience);
      if (!state.mounted.has(volume.name) && isPropagated(state.pod, volume, ready))
        await shareDirectory(deps.host, ready.hostPath, patience);
      state.mounted.set(volume.name, ready);
      retries.reset(keyOf(state, volume));
    } catch (error) {
      if (ended.aborted) throw error;
      if (lost?.aborted) return attempt(state, volume);
      if (error instanceof UnprocessedError || error instanceof NotYetError) throw error;
      retries.next(keyOf(state, volume));
      deps.events.event(podReference(state.pod), "Warning", failureReason(error), mountFailure(volume.name, error));
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
  kind: VolumeKind,
  deps: SetUpDeps,
  { pod, volume }: { readonly pod: Pod; readonly volume: Volume },
  signal: AbortSignal,
): Promise<VolumeReady> {
  const { clock, measures } = deps;
  let plugin = volumePlugin(volume);
  const isDevice = namesIn(pod, "volumeDevices").has(volume.name);
  return timed(
    clock,
    async () => {
      const ready = await kind.setUp(deps, pod, volume, signal);
      plugin = ready.persistent?.plugin ?? plugin;
      return ready;
    },
    (ms, failed) => measures[isDevice ? "mapped" : "setUp"](plugin, ms, failed),
  );
}

function keyOf({ pod }: PodVolumes, volume: Volume): string {
  return `${pod.metadata.uid}/${volume.name}`;
}
