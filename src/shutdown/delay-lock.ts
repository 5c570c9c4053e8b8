import type { Held } from "../host/held.ts";
import { remotePulse } from "../host/pulse.ts";
import { inhibitShutdown } from "../host/systemd/inhibitor.ts";
import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";

export interface DelayLockDeps {
  readonly host: Pick<Host, "spawn">;
  /** The target is another machine. */
  readonly isRemote: boolean;
  readonly clock: Clock;
}

/** The node's lock on the shutdown of its machine: one at a time. */
export interface DelayLock {
  /** Takes a lock, then gives the one before back.
   *  @param onLost called when the lock ends without having been released. @throws as `inhibitShutdown` does. */
  take(onLost: () => void, signal: AbortSignal): Promise<void>;
  /** Lets the machine shut down. Safe to repeat. */
  release(): Promise<void>;
}

/** A lock that nobody has taken yet. */
export function createDelayLock({ host, isRemote, clock }: DelayLockDeps): DelayLock {
  let held: Held | undefined;
  const release = async () => {
    const before = held;
    held = undefined;
    await before?.[Symbol.asyncDispose]();
  };
  return {
    async take(onLost, signal) {
      const taken = await inhibitShutdown(host, signal, isRemote ? { ...remotePulse, clock } : undefined);
      await release();
      held = taken;
      void taken.over.then(() => {
        if (held === taken) onLost();
      });
    },
    release,
  };
}
