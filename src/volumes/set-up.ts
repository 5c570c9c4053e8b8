import { createBackoff } from "../lib/backoff.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Pod, Volume } from "../objects.ts";
import { podReference } from "../pod/reference.ts";
import { kindOf } from "./kinds/index.ts";
import type { SetUpDeps, VolumeDeps, VolumeReady } from "./kinds/kind.ts";
import { podDirectory } from "./paths.ts";

/** A pod's volumes as this node has set them up. */
export interface PodVolumes {
  pod: Pod;
  readonly mounted: Map<string, VolumeReady>;
  /** Ends waits between tries, so that a changed object is tried at once. */
  kick: AbortController;
}

/** Between tries of a failed volume, milliseconds: the kubelet's. */
const firstRetryMs = 500;
export const longestRetryMs = 122_000;

export interface SetUp {
  /** One try at a volume that is not ready, or may not be current. @throws with the text that the event shows. */
  once(state: PodVolumes, volume: Volume, signal: AbortSignal): Promise<void>;
  /** Tries until it works or the signal aborts; a volume that stood before may stay as it was. */
  untilReady(state: PodVolumes, volume: Volume, signal: AbortSignal): Promise<void>;
  /** Forgets what the pod's directories hold. */
  forget(uid: string): void;
}

/** Sets up volumes by their kinds, with an event for each failure and a growing pause between tries. */
export function createSetUp(given: VolumeDeps): SetUp {
  const { clock, events, log } = given;
  const deps: SetUpDeps = { ...given, written: new Map<string, string>() };
  const retries = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });

  const once = async (state: PodVolumes, volume: Volume, signal: AbortSignal) => {
    const kind = kindOf(volume);
    if (!kind) throw new CodedError("unimplemented", `no volume plugin matched: ${volume.name}`);
    if (state.mounted.has(volume.name) && !kind.refreshes) return;
    const key = keyOf(state, volume);
    try {
      state.mounted.set(volume.name, await kind.setUp(deps, state.pod, volume, signal));
      retries.reset(key);
    } catch (error) {
      if (signal.aborted) throw error;
      retries.next(key);
      events.event(podReference(state.pod), "Warning", "FailedMount", `MountVolume.SetUp failed for volume "${volume.name}" : ${messageOf(error)}`);
      throw error;
    }
  };

  return {
    once,
    async untilReady(state, volume, signal) {
      while (!signal.aborted) {
        try {
          return await once(state, volume, signal);
        } catch (error) {
          if (state.mounted.has(volume.name)) return;
          log.debug({ err: error, uid: state.pod.metadata.uid, volume: volume.name }, "volume is not ready, will try again");
          await clock.sleep(retries.remaining(keyOf(state, volume)), AbortSignal.any([signal, state.kick.signal])).catch(() => undefined);
        }
      }
    },
    forget(uid) {
      const below = `${podDirectory(deps.rootDir, uid)}/`;
      for (const path of deps.written.keys()) if (path.startsWith(below)) deps.written.delete(path);
    },
  };
}

function keyOf({ pod }: PodVolumes, volume: Volume): string {
  return `${pod.metadata.uid}/${volume.name}`;
}
