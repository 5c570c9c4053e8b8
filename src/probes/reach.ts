import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";

/** Tells an outcome that describes the container from one that describes the connection to the target. */
export interface Reach {
  /** False while the target is known to be out of reach: then no probe can be made. */
  isUp(): boolean;
  /** How often a connection to the target has been lost. */
  losses(): number;
  /** Asked after a probe has failed: whether the target itself answers, as fast as the probe would have waited. It takes a
   *  while until a connection that is cut is known to be lost, and till then only probes notice.
   *  @param withinMs how long the probe would have waited. */
  stands(withinMs: number, signal: AbortSignal): Promise<boolean>;
}

export interface ReachDeps {
  readonly host: Pick<Host, "fs">;
  /** Absent where the target is this machine: that is never out of reach. */
  readonly link?: TargetLink;
  readonly clock: Clock;
}

export function createReach({ host, link, clock }: ReachDeps): Reach {
  const losses = () => link?.losses() ?? 0;
  return {
    isUp: () => link?.trouble() === undefined,
    losses,
    async stands(withinMs, signal) {
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
