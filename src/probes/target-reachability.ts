import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";

/** Distinguishes failures of the container from failures of the connection to the target. */
export type TargetReachability = ReturnType<typeof createTargetReachability>;

export interface TargetReachabilityDeps {
  readonly host: Pick<Host, "fs">;
  /** Absent for a local target, which is always reachable. */
  readonly link?: TargetLink;
  /** The locks without which the target is not used. */
  readonly claim: ProbeClaim;
  readonly clock: Clock;
}

/** The part of the target's claim on which probes depend. */
export interface ProbeClaim {
  isLost(): boolean;
  /** @returns unsubscribes. */
  onLost(listener: () => void): () => void;
}

export function createTargetReachability({ host, link, claim, clock }: TargetReachabilityDeps) {
  let lostClaims = 0;
  claim.onLost(() => void lostClaims++);
  /** Number of connections to the target, and of its locks, lost so far. */
  const losses = () => (link?.losses() ?? 0) + lostClaims;
  return {
    /** False while the target is known to be unreachable, or not to be used: no probe can be run. */
    isReachable: () => link?.trouble() === undefined && !claim.isLost(),
    losses,
    /** After a failed probe: whether the target itself answers within the probe's timeout. A broken connection is detected late, and until
     *  then only probes notice it.
     *  @param withinMs the probe's timeout. */
    async answers(withinMs: number, signal: AbortSignal) {
      if (claim.isLost()) return false;
      if (!link) return true;
      const before = losses();
      const answers = await host.fs.stat("/", clock.within(withinMs, signal)).then(
        () => true,
        () => false,
      );
      return answers && losses() === before;
    },
  };
}
