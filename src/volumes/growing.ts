import { createBackoff } from "../lib/backoff.ts";
import { messageOf, throwIfAborted } from "../lib/errors.ts";
import { timed } from "../lib/timed.ts";
import type { Volume } from "../objects.ts";
import { podReference } from "../pod/reference.ts";
import type { VolumeDeps } from "./kinds/kind.ts";
import { usedVolumes } from "./paths.ts";
import { sizeOf } from "./persistent/claim-status.ts";
import { type Growing, capacityOf, expandInUse, isSmaller } from "./persistent/expansion.ts";
import { persistentKindOf, pluginOf } from "./persistent/index.ts";
import { boundVolume } from "./persistent/resolve.ts";
import { type PodVolumes, type SharedState, firstRetryMs, longestRetryMs, longestTryMs, runs } from "./set-up.ts";

/** Minimum interval between two checks of a volume, shared by its pods, milliseconds. */
const betweenLooksMs = 5_000;
/** Maximum pause while the control plane has not finished its own part of the expansion, milliseconds. */
const longestWaitMs = 10_000;

/** Expands volumes that are in use. */
export interface Grower {
  /** Checks whether volumes of a pod need to be expanded, and follows each expansion to its end. Returns at once. */
  look(state: PodVolumes): void;
  /** Forgets volumes that are no longer used by any pod. */
  collect(): void;
}

/** A node may not watch claims. It therefore reads the claims of a pod with each sync, at most every five seconds for all pods
 *  that share a volume.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims */
export function createGrower(deps: VolumeDeps & SharedState): Grower {
  const { clock, log, growths, staging } = deps;
  const followed = new Set<string>();
  const lookedAt = new Map<string, number>();
  const failures = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });
  const waits = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestWaitMs });

  const follow = async (state: PodVolumes, volume: Volume, id: string): Promise<void> => {
    const { signal: ended } = state.ended;
    const last = lookedAt.get(id);
    // The volume has just been read to be mounted.
    if (last === undefined) return void lookedAt.set(id, clock.now());
    await clock.sleep(Math.max(0, last + betweenLooksMs - clock.now()), ended);
    for (;;) {
      const lost = deps.waitForTarget && (await deps.waitForTarget(ended));
      throwIfAborted(ended);
      lookedAt.set(id, clock.now());
      const outcome = await step(deps, state, volume, id, lost).catch((err: unknown) => {
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
    look(state) {
      for (const volume of usedVolumes(state.pod)) {
        const id = state.mounted.get(volume.name)?.growing;
        if (id === undefined || followed.has(id)) continue;
        followed.add(id);
        void runs(
          state,
          follow(state, volume, id)
            .catch((err: unknown) => log.debug({ err, volume: id }, "stopped checking a volume for expansion"))
            .finally(() => followed.delete(id)),
        );
      }
    },
    collect() {
      growths.collect();
      for (const backoff of [failures, waits]) backoff.collect();
      for (const id of lookedAt.keys()) if (!staging.isElsewhere(id, "")) lookedAt.delete(id);
    },
  };
}

/** Checks a mounted volume once and tries to expand it if needed. @returns what to do next. @throws if the attempt fails. */
async function step(
  deps: VolumeDeps & SharedState,
  state: PodVolumes,
  asked: Volume,
  id: string,
  lost: AbortSignal | undefined,
): Promise<"rest" | "wait"> {
  const { clock, staging, growths, measures, events } = deps;
  const { signal: ended } = state.ended;
  const patience = clock.within(longestTryMs, lost ? AbortSignal.any([ended, lost]) : ended);
  const found = await boundVolume(deps.claims, state.pod, asked, patience).catch(() => undefined);
  if (!found) return "rest";
  const { claim, volume, readOnly } = found;
  const kind = persistentKindOf(volume);
  const { expand } = kind;
  const growth = growths.of(id, sizeOf(claim));
  const use = { pod: state.pod, volume, readOnly, options: [] };
  const growing: Growing | undefined = expand && { use, growth, expand };
  if (!growing || kind.id(volume) !== id || growth.isInUse || !isBigger(growth.size, capacityOf(use))) return "rest";
  return staging.inTurn(id, async () => {
    // The pod may have been terminated in the meantime.
    throwIfAborted(ended);
    try {
      const done = await timed(
        clock,
        () => expandInUse(deps, growing, claim, patience),
        (ms, failed) => measures.expanded(pluginOf(kind, volume), ms, failed),
      );
      return done || growth.isInUse ? "rest" : "wait";
    } catch (error) {
      const message = `NodeExpandVolume.NodeExpandVolume failed for volume "${volume.metadata.name}" : ${messageOf(error)}`;
      if (!ended.aborted && lost?.aborted !== true)
        events.event(podReference(state.pod), "Warning", "VolumeResizeFailed", message);
      throw error;
    }
  });
}

/** True if both sizes are known and the first is larger. */
function isBigger(size: string, other: string): boolean {
  return isSmaller("0", size) && isSmaller(size, other);
}
