import { CodedError, codeOf, throwIfAborted } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { WaitForTarget } from "../pipeline.ts";
import type { Host } from "../seams/host.ts";
import type { Fence } from "../seams/fenced.ts";
import { type TargetLink, TargetError } from "../seams/provider.ts";
import { type HostFacts, changedFacts, readFacts } from "../host/facts.ts";

export interface RebootWatchDeps extends ClockAndLog {
  readonly host: Pick<Host, "clock">;
  readonly link: TargetLink;
  /** The locks that reserve the target for this node. */
  readonly claim: Fence & {
    /** Calls the listener when the locks are lost. @returns removes the listener. */
    onLost(listener: () => void): () => void;
  };
  /** The target's boot id when its facts were read. */
  readonly bootID: string;
  /** Why the node cannot continue although the target has not rebooted, in a few words for the log; undefined if it can. */
  readonly unfit: (signal: AbortSignal) => Promise<string | undefined>;
  /** Called once, when the state known of the target is outdated. */
  readonly onReboot: () => void;
}

export interface RebootWatch extends Runnable {
  readonly present: WaitForTarget;
}

const retryDelayMs = 1_000;
const checkTimeoutMs = 20_000;

/** Checks whenever a lost target is reachable again that it has not rebooted: mounts, cgroups and memory-backed volumes do not survive a
 *  reboot. Also checks that the node can continue otherwise. A target whose locks are lost counts as lost, and while the state of the
 *  locks is unknown, no new work starts. */
export function createRebootWatch(deps: RebootWatchDeps): RebootWatch {
  const { host, link, claim, bootID, unfit, onReboot, clock, log } = deps;
  let unsure: PromiseWithResolvers<void> | undefined;
  let connected = new AbortController();
  let changed = Promise.withResolvers<void>();
  const lost = () => link.trouble() !== undefined;
  let losses = link.losses();
  const setUnsure = (next: typeof unsure) => {
    unsure?.resolve();
    unsure = next;
  };
  const lose = (what: string) => {
    connected.abort(new CodedError("unavailable", `${what} is lost`));
    connected = new AbortController();
    setUnsure(Promise.withResolvers<void>());
    changed.resolve();
  };
  const note = () => {
    // The claim may be lost with the connection.
    if (link.losses() !== losses) lose("the target");
    losses = link.losses();
    if (lost()) setUnsure(Promise.withResolvers<void>());
    changed.resolve();
  };
  /** Resolves when new work may start; undefined if it may start now. */
  const pendingCheck = (): Promise<void> | undefined =>
    unsure?.promise ?? (claim.isVerified() ? undefined : claim.verify().catch(() => lose("the lock on the target")));
  /** @returns false once the target has rebooted. */
  const check = async (signal: AbortSignal): Promise<boolean> => {
    const before = link.losses();
    const life = connected;
    try {
      const now = await host.clock.bootId(clock.within(checkTimeoutMs, signal));
      if (now !== bootID) {
        log.warn({ bootID, now }, "target has rebooted; restarting node");
        onReboot();
        return false;
      }
      const why = await unfit(clock.within(checkTimeoutMs, signal));
      if (why !== undefined) {
        log.warn({ why }, "target changed while unreachable; restarting node");
        onReboot();
        return false;
      }
      // If it was lost again meanwhile, check again.
      if (before === link.losses() && life === connected && !lost()) setUnsure(undefined);
    } catch (error) {
      if (!signal.aborted)
        log.debug({ err: error, code: codeOf(error) }, "cannot check whether the target has changed");
    }
    return true;
  };
  return {
    name: "reboot watch",
    async present(signal) {
      const forget = new AbortController();
      const aborted = onAbort(signal, forget.signal);
      for (let wait = pendingCheck(); wait && !signal.aborted; wait = pendingCheck())
        await Promise.race([wait, aborted]);
      forget.abort();
      throwIfAborted(signal);
      return connected.signal;
    },
    async run(signal) {
      // The target may have rebooted since its facts were read.
      setUnsure(Promise.withResolvers<void>());
      const unsubscribe = [link.onChange(note), claim.onLost(() => lose("the lock on the target"))];
      while (!signal.aborted) {
        changed = Promise.withResolvers<void>();
        if (unsure && !lost() && !(await check(signal))) break;
        await pause(clock, unsure && !lost() ? retryDelayMs : undefined, changed.promise, signal);
      }
      for (const undo of unsubscribe) undo();
    },
  };
}

interface TargetCheckDeps {
  readonly host: Host;
  /** Acquires the locks on the target again if they were lost. @throws TargetError if another agent has them. */
  readonly renewClaim: (signal: AbortSignal) => Promise<void>;
  /** The target's facts at the start of the node. */
  readonly facts: HostFacts;
}

/** Why the node cannot continue on a target that is reachable again: another agent uses it, or it has changed; undefined if it can.
 *  @throws if the target cannot be read. */
export async function unfitReason(
  { host, renewClaim, facts }: TargetCheckDeps,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    await renewClaim(signal);
  } catch (error) {
    if (error instanceof TargetError) return error.message;
    throw error;
  }
  const changed = changedFacts(facts, await readFacts(host, signal));
  return changed.length > 0 ? `changed: ${changed.join(", ")}` : undefined;
}
