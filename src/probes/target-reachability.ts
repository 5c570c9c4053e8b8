import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";

/** Distinguishes failures of the container from failures of the connection to the target. */
export type TargetReachability = ReturnType<typeof createTargetReachability>;

export interface TargetReachabilityDeps {
  readonly host: Pick<Host, "fs">;
  /** Absent for a local target, which is always reachable. */
  readonly link?: TargetLink;
  readonly clock: Clock;
}

export function createTargetReachability({ host, link, clock }: TargetReachabilityDeps) {
  /** Number of connections to the target lost so far. */
  const losses = () => link?.losses() ?? 0;
  return {
    /** False while the target is known to be unreachable: no probe can be run. */
    isReachable: () => link?.trouble() === undefined,
    losses,
    /** After a failed probe: whether the target itself answers within the probe's timeout. A broken connection is detected late, and until
     *  then only probes notice it.
     *  @param withinMs the probe's timeout. */
    async answers(withinMs: number, signal: AbortSignal) {
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
