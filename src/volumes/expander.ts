import { createBackoff } from "../lib/backoff.ts";
import { messageOf, throwIfAborted } from "../lib/errors.ts";
import { timed } from "../lib/timed.ts";
import type { Volume } from "../objects.ts";
import { podReference } from "../pod/reference.ts";
import type { VolumeDeps } from "./plugins/plugin.ts";
import { usedVolumes } from "./paths.ts";
import { claimCapacity } from "./persistent/claim-status.ts";
import { type Expansion, volumeCapacity, expandInUse, isSmaller } from "./persistent/expansion.ts";
import { persistentPluginFor, pluginNameOf } from "./persistent/index.ts";
import { boundVolume } from "./persistent/resolve-claim.ts";
import {
  type PodVolumes,
  type SharedVolumeState,
  initialRetryDelayMs,
  maxRetryDelayMs,
  attemptTimeoutMs,
  trackWork,
} from "./set-up.ts";

/** Minimum interval between two checks of a volume, shared by its pods, milliseconds. */
const minCheckIntervalMs = 5_000;
/** Maximum pause while the control plane has not finished its own part of the expansion, milliseconds. */
const maxWaitDelayMs = 10_000;

/** Expands volumes that are in use. Nodes have no permission to watch claims, so a pod's claims are read with each sync: at most
 *  every five seconds for all pods that share a volume.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims */
export function createVolumeExpander(deps: VolumeDeps & SharedVolumeState) {
  const { clock, log, expansionStates, volumeStates } = deps;
  const inProgress = new Set<string>();
  const lastCheckedAt = new Map<string, number>();
  const failures = createBackoff({ clock, initialMs: initialRetryDelayMs, maxMs: maxRetryDelayMs });
  const waits = createBackoff({ clock, initialMs: initialRetryDelayMs, maxMs: maxWaitDelayMs });

  const expandUntilDone = async (state: PodVolumes, volume: Volume, id: string): Promise<void> => {
    const { signal: ended } = state.ended;
    const last = lastCheckedAt.get(id);
    // The claim was read a moment ago, when the volume was mounted.
    if (last === undefined) return void lastCheckedAt.set(id, clock.now());
    await clock.sleep(Math.max(0, last + minCheckIntervalMs - clock.now()), ended);
    for (;;) {
      const lost = deps.waitForTarget && (await deps.waitForTarget(ended));
      throwIfAborted(ended);
      lastCheckedAt.set(id, clock.now());
      const outcome = await checkAndExpand(deps, state, volume, id, lost).catch((err: unknown) => {
        log.debug({ err, uid: state.pod.metadata.uid, volume: volume.name }, "cannot expand volume; retrying");
        return "failed" as const;
      });
      const backoff = outcome === "failed" ? failures : waits;
      if (outcome === "rest") break;
      await clock.sleep(backoff.next(id), ended);
    }
    for (const backoff of [failures, waits]) backoff.reset(id);
  };

  return {
    /** Checks whether volumes of a pod need to be expanded, and follows each expansion to its end. Returns at once. */
    check(state: PodVolumes) {
      for (const volume of usedVolumes(state.pod)) {
        const id = state.mounted.get(volume.name)?.expandableId;
        if (id === undefined || inProgress.has(id)) continue;
        inProgress.add(id);
        void trackWork(
          state,
          expandUntilDone(state, volume, id)
            .catch((err: unknown) => log.debug({ err, volume: id }, "stopped checking a volume for expansion"))
            .finally(() => inProgress.delete(id)),
        );
      }
    },
    /** Forgets volumes that are no longer used by any pod. */
    forgetUnused() {
      expansionStates.forgetUnused();
      for (const backoff of [failures, waits]) backoff.collect();
      for (const id of lastCheckedAt.keys()) if (!volumeStates.isUsedByOtherPod(id, "")) lastCheckedAt.delete(id);
    },
  };
}

/** Checks a mounted volume once and tries to expand it if needed. @returns what to do next. @throws if the attempt fails. */
async function checkAndExpand(
  deps: VolumeDeps & SharedVolumeState,
  podVolumes: PodVolumes,
  podVolume: Volume,
  id: string,
  lost: AbortSignal | undefined,
): Promise<"rest" | "wait"> {
  const { clock, volumeStates, expansionStates, measures, events } = deps;
  const { signal: ended } = podVolumes.ended;
  const attempt = clock.within(attemptTimeoutMs, lost ? AbortSignal.any([ended, lost]) : ended);
  const found = await boundVolume(deps.claims, podVolumes.pod, podVolume, attempt).catch(() => undefined);
  if (!found) return "rest";
  const { claim, volume, readOnly } = found;
  const plugin = persistentPluginFor(volume);
  const { expand } = plugin;
  const state = expansionStates.stateOf(id, claimCapacity(claim));
  const use = { pod: podVolumes.pod, volume, readOnly, options: [] };
  const expansion: Expansion | undefined = expand && { use, state, expand };
  if (!expansion || plugin.id(volume) !== id || state.isInUse || !isBigger(state.size, volumeCapacity(use)))
    return "rest";
  return volumeStates.serialize(id, async () => {
    // The pod may have been terminated in the meantime.
    throwIfAborted(ended);
    try {
      const done = await timed(
        clock,
        () => expandInUse(deps, expansion, claim, attempt),
        (ms, failed) => measures.expanded(pluginNameOf(plugin, volume), ms, failed),
      );
      return done || state.isInUse ? "rest" : "wait";
    } catch (error) {
      const message = `NodeExpandVolume.NodeExpandVolume failed for volume "${volume.metadata.name}" : ${messageOf(error)}`;
      if (!ended.aborted && lost?.aborted !== true)
        events.event(podReference(podVolumes.pod), "Warning", "VolumeResizeFailed", message);
      throw error;
    }
  });
}

/** True if both sizes are known and the first is larger. */
function isBigger(size: string, other: string): boolean {
  return isSmaller("0", size) && isSmaller(size, other);
}
