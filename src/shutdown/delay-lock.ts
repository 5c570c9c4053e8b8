import type { LockHolder } from "../host/lock-holder.ts";
import { remoteHeartbeat } from "../host/holder-heartbeat.ts";
import { inhibitShutdown } from "../host/systemd/inhibitor.ts";
import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";

export interface DelayLockDeps {
  readonly host: Pick<Host, "spawn">;
  /** The target is another machine. */
  readonly isRemote: boolean;
  readonly clock: Clock;
}

/** logind's delay inhibitor lock of a node: at most one at a time. */
export interface DelayLock {
  /** Acquires a new lock, then releases the previous one. @param onLost called when the lock ends without having been released. @throws as
   *  `inhibitShutdown` does. */
  take(onLost: () => void, signal: AbortSignal): Promise<void>;
  /** Lets the machine shut down. Safe to repeat. */
  release(): Promise<void>;
}

/** Creates the lock, not yet acquired. */
export function createDelayLock({ host, isRemote, clock }: DelayLockDeps): DelayLock {
  let held: LockHolder | undefined;
  const release = async () => {
    const before = held;
    held = undefined;
    await before?.[Symbol.asyncDispose]();
  };
  return {
    async take(onLost, signal) {
      const taken = await inhibitShutdown(host, signal, isRemote ? { ...remoteHeartbeat, clock } : undefined);
      await release();
      held = taken;
      void taken.ended.then(() => {
        if (held === taken) onLost();
      });
    },
    release,
  };
}
