import type { Timer } from "../lib/clock.ts";
import { createBackoff } from "../lib/backoff.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Pod, Volume } from "../objects.ts";
import type { MountedVolume, VolumeGate } from "../pipeline.ts";
import { referencedObjects } from "../pod/object-references.ts";
import { podReference } from "../pod/reference.ts";
import { kindOf } from "./kinds/index.ts";
import type { VolumeDeps, VolumeReady } from "./kinds/kind.ts";
import { podDirectory, usedVolumes } from "./paths.ts";
import { listPodDirectories, removePodDirectory, unmountAll } from "./teardown.ts";

/** How long a pass waits for its volumes, and how soon a failed one is tried again, milliseconds: the kubelet's. */
const mountWaitMs = 123_000;
const firstRetryMs = 500;
const longestRetryMs = 122_000;

export interface Volumes extends VolumeGate {
  /** A config map or secret changed: volumes made of it are set up again, now. */
  objectChanged(kind: "configmap" | "secret", namespace: string, name: string): void;
  /** UIDs of pods that have a directory on the target. */
  podDirectories(signal: AbortSignal): Promise<readonly string[]>;
  /** Removes the directory of a pod whose volumes are unmounted. */
  removePodDirectory(uid: string, signal: AbortSignal): Promise<void>;
  /** Ends everything that waits. */
  stop(): void;
}

interface PodVolumes {
  pod: Pod;
  readonly mounted: Map<string, VolumeReady>;
  /** Ends waits between tries, so that a changed object is tried at once. */
  kick: AbortController;
  refresh: Timer | undefined;
}

/** The volumes of pods on the target. @see https://kubernetes.io/docs/concepts/storage/volumes/ */
export function createVolumes(deps: VolumeDeps): Volumes {
  const { clock, events, log } = deps;
  const known = new Map<string, PodVolumes>();
  const written = new Map<string, string>();
  const retries = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });
  const stopped = new AbortController();

  const stateOf = (pod: Pod): PodVolumes => {
    const state = known.get(pod.metadata.uid) ?? { pod, mounted: new Map<string, VolumeReady>(), kick: new AbortController(), refresh: undefined };
    state.pod = pod;
    known.set(pod.metadata.uid, state);
    return state;
  };

  const setUp = async (state: PodVolumes, volume: Volume, signal: AbortSignal) => {
    const kind = kindOf(volume);
    if (!kind) throw new CodedError("unimplemented", `no volume plugin matched: ${volume.name}`);
    if (state.mounted.has(volume.name) && !kind.refreshes) return;
    const key = `${state.pod.metadata.uid}/${volume.name}`;
    try {
      state.mounted.set(volume.name, await kind.setUp({ ...deps, written }, state.pod, volume, signal));
      retries.reset(key);
    } catch (error) {
      if (signal.aborted) throw error;
      retries.next(key);
      events.event(podReference(state.pod), "Warning", "FailedMount", `MountVolume.SetUp failed for volume "${volume.name}" : ${messageOf(error)}`);
      throw error;
    }
  };

  /** Tries until it works or the signal aborts; a volume that stood before may stay as it was. */
  const setUpUntilReady = async (state: PodVolumes, volume: Volume, signal: AbortSignal) => {
    while (!signal.aborted) {
      try {
        return await setUp(state, volume, signal);
      } catch (error) {
        if (state.mounted.has(volume.name)) return;
        log.debug({ err: error, uid: state.pod.metadata.uid, volume: volume.name }, "volume is not ready, will try again");
        const pause = retries.remaining(`${state.pod.metadata.uid}/${volume.name}`);
        await clock.sleep(pause, AbortSignal.any([signal, state.kick.signal])).catch(() => undefined);
      }
    }
  };

  const scheduleRefresh = (state: PodVolumes) => {
    state.refresh?.cancel();
    const due = [...state.mounted.values()].map(({ refreshAt }) => refreshAt).filter((at) => at !== undefined);
    state.refresh = due.length === 0 ? undefined : clock.after(Math.max(1_000, Math.min(...due) - clock.now()), () => void refresh(state));
  };

  const refresh = async (state: PodVolumes) => {
    const { uid } = state.pod.metadata;
    if (known.get(uid) !== state || stopped.signal.aborted) return;
    const results = await Promise.allSettled(usedVolumes(state.pod).map((volume) => setUp(state, volume, stopped.signal)));
    if (known.get(uid) !== state || stopped.signal.aborted) return;
    scheduleRefresh(state);
    const failed = results.find((result) => result.status === "rejected");
    if (!failed) return;
    log.warn({ err: failed.reason as unknown, uid }, "volume could not be brought up to date, will try again");
    state.refresh?.cancel();
    state.refresh = clock.after(longestRetryMs, () => void refresh(state));
  };

  return {
    async mount(pod, signal) {
      const state = stateOf(pod);
      const volumes = usedVolumes(pod);
      const deadline = clock.within(mountWaitMs, signal);
      await Promise.all(volumes.map((volume) => setUpUntilReady(state, volume, deadline)));
      const missing = volumes.filter(({ name }) => !state.mounted.has(name)).map(({ name }) => name);
      if (missing.length === 0) return scheduleRefresh(state);
      if (signal.aborted) throw new CodedError("cancelled", "waiting for volumes was interrupted");
      const message = `Unable to attach or mount volumes: unmounted volumes=[${missing.join(" ")}], unattached volumes=[], failed to process volumes=[]: context deadline exceeded`;
      events.event(podReference(pod), "Warning", "FailedMount", message);
      throw new CodedError("deadline_exceeded", message);
    },
    mounted: (uid): ReadonlyMap<string, MountedVolume> => known.get(uid)?.mounted ?? new Map(),
    async unmount(uid, signal) {
      known.get(uid)?.refresh?.cancel();
      known.delete(uid);
      for (const path of written.keys()) if (path.startsWith(`${podDirectory(deps.rootDir, uid)}/`)) written.delete(path);
      await unmountAll(deps.host, deps.rootDir, uid, signal);
    },
    objectChanged(kind, namespace, name) {
      for (const state of known.values()) {
        if (state.pod.metadata.namespace !== namespace) continue;
        const { secrets, configMaps } = referencedObjects(state.pod);
        if (!(kind === "secret" ? secrets : configMaps).includes(name)) continue;
        state.kick.abort();
        state.kick = new AbortController();
        if (state.mounted.size > 0) void refresh(state);
      }
    },
    podDirectories: (signal) => listPodDirectories(deps.host, deps.rootDir, signal),
    removePodDirectory: (uid, signal) => removePodDirectory(deps.host, deps.rootDir, uid, signal),
    stop() {
      stopped.abort();
      for (const { refresh: timer } of known.values()) timer?.cancel();
    },
  };
}
