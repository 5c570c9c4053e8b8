import type { LockHolder } from "../host/lock-holder.ts";
import { remoteHeartbeat } from "../host/holder-heartbeat.ts";
import { inhibitShutdown } from "../host/systemd/inhibitor.ts";
import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";

export interface ShutdownInhibitorDeps {
  readonly host: Pick<Host, "spawn">;
  /** The target is another machine. */
  readonly isRemote: boolean;
  readonly clock: Clock;
}

/** logind's delay inhibitor lock of a node: at most one at a time. */
export interface ShutdownInhibitor {
  /** Acquires a new lock, then releases the previous one. @param onLost called when the lock ends without having been released. @throws as
   *  `inhibitShutdown` does. */
  acquire(onLost: () => void, signal: AbortSignal): Promise<void>;
  /** Lets the machine shut down. Safe to repeat. */
  release(): Promise<void>;
}

/** Creates the lock, not yet acquired. */
export function createShutdownInhibitor({ host, isRemote, clock }: ShutdownInhibitorDeps): ShutdownInhibitor {
  let current: LockHolder | undefined;
  const release = async () => {
    const previous = current;
    current = undefined;
    await previous?.[Symbol.asyncDispose]();
  };
  return {
    async acquire(onLost, signal) {
      const acquired = await inhibitShutdown(host, signal, isRemote ? { ...remoteHeartbeat, clock } : undefined);
      await release();
      current = acquired;
      void acquired.ended.then(() => {
        if (current === acquired) onLost();
      });
    },
    release,
  };
}
