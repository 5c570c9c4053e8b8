import type { Clock, Timer } from "../../lib/clock.ts";
import { unlessGone } from "../../lib/errors.ts";
import type { Logger } from "../../lib/log.ts";
import { createTurns } from "../../lib/turns.ts";
import type { Host } from "../../seams/host.ts";
import { stagedVolumes, unstage } from "./staged.ts";

/** Pause before the next try at what could not be unstaged, milliseconds. */
const retryMs = 5_000;

/** State of persistent volumes on the node that their pods share. */
export interface Staging {
  /** Works on one volume: the steps of one volume are never taken side by side, those of others are. */
  inTurn<T>(volume: string, work: () => Promise<T>): Promise<T>;
  /** Another pod than this has the volume. */
  isElsewhere(volume: string, uid: string): boolean;
  /** The pod has the volume now. */
  took(volume: string, uid: string): void;
  /** A pod's volumes are unmounted: what it was the last to have is unstaged. What fails is logged and tried again: it does not keep
   *  the pod. @param known the pod's volumes; undefined: any. */
  left(uid: string, known: readonly string[] | undefined, signal: AbortSignal): Promise<void>;
  /** Ends all tries. */
  stop(): void;
}

export function createStaging({
  host,
  rootDir,
  clock,
  log,
}: {
  readonly host: Host;
  readonly rootDir: string;
  readonly clock: Clock;
  readonly log: Logger;
}): Staging {
  const turns = new Map<string, { users: number; readonly take: ReturnType<typeof createTurns> }>();
  const holders = new Map<string, Set<string>>();
  const timers = new Map<string, Timer>();
  const stopped = new AbortController();

  const inTurn = async <T>(volume: string, work: () => Promise<T>): Promise<T> => {
    const turn = turns.get(volume) ?? { users: 0, take: createTurns(1) };
    turns.set(volume, turn);
    turn.users += 1;
    try {
      return await turn.take(work);
    } finally {
      turn.users -= 1;
      if (turn.users === 0) turns.delete(volume);
    }
  };

  const tryAt = async (volume: string, signal: AbortSignal): Promise<void> => {
    timers.get(volume)?.cancel();
    timers.delete(volume);
    try {
      await inTurn(volume, () => unlessGone(unstage(host, rootDir, volume, signal)));
    } catch (error) {
      if (stopped.signal.aborted) return;
      log.warn({ err: error, volume }, "a volume could not be unmounted from the node, will try again");
      timers.set(
        volume,
        clock.after(retryMs, () => void tryAt(volume, stopped.signal)),
      );
    }
  };

  return {
    inTurn,
    isElsewhere: (volume, uid) => [...(holders.get(volume) ?? [])].some((other) => other !== uid),
    took(volume, uid) {
      holders.set(volume, (holders.get(volume) ?? new Set()).add(uid));
    },
    async left(uid, known, signal) {
      for (const [volume, pods] of holders) if (pods.delete(uid) && pods.size === 0) holders.delete(volume);
      if (known?.length === 0) return;
      const staged = await stagedVolumes(host, rootDir, signal);
      await Promise.all(staged.filter((name) => known?.includes(name) ?? true).map((name) => tryAt(name, signal)));
    },
    stop() {
      stopped.abort();
      for (const timer of timers.values()) timer.cancel();
    },
  };
}
