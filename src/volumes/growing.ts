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

/** Shortest interval between looks at a volume: its pods share them, milliseconds. */
const betweenLooksMs = 5_000;
/** Longest pause while the control plane is not done with its own part of it, milliseconds. */
const longestWaitMs = 10_000;

/** Makes volumes grow that pods have. */
export interface Grower {
  /** Looks whether volumes of a pod have become bigger, and follows those that have until they are done. Returns at once. */
  look(state: PodVolumes): void;
  /** Forgets volumes that no pod has any more. */
  collect(): void;
}

/** A node may not watch claims: it reads those of a pod with each pass over it, at most every five seconds for all of its pods together.
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
    // It was read this moment, to be set up.
    if (last === undefined) return void lookedAt.set(id, clock.now());
    await clock.sleep(Math.max(0, last + betweenLooksMs - clock.now()), ended);
    for (;;) {
      const lost = deps.presence && (await deps.presence(ended));
      throwIfAborted(ended);
      lookedAt.set(id, clock.now());
      const outcome = await step(deps, state, volume, id, lost).catch((err: unknown) => {
        log.debug({ err, uid: state.pod.metadata.uid, volume: volume.name }, "volume does not grow, will try again");
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
            .catch((err: unknown) => log.debug({ err, volume: id }, "a look at a volume was given up"))
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

/** One look at a volume that a pod has, and one try to make it grow. @returns what to do next. @throws what the try does. */
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
    // The pod's end may have come meanwhile.
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

/** True for a known size that is bigger than another. */
function isBigger(size: string, other: string): boolean {
  return isSmaller("0", size) && isSmaller(size, other);
}
