import type { Cgroups } from "../host/cgroups.ts";
import { cgroupVersion } from "../host/exists.ts";
import type { Clock } from "../lib/clock.ts";
import { createSharedWork } from "../lib/shared-work.ts";
import { timed } from "../lib/timed.ts";
import type { CgroupMeasures, CgroupOperation } from "../measures.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { Host } from "../seams/host.ts";
import { openCgroupsOf } from "./cgroup-driver.ts";

export interface NodeCgroupsDeps {
  readonly host: Host;
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly measures: CgroupMeasures;
  readonly clock: Clock;
}

/** The target's cgroups, and where pods have theirs. */
export interface NodeCgroups {
  readonly cgroups: Cgroups;
  readonly layout: CgroupLayout;
  readonly version: 1 | 2;
}

/** Opens the target's cgroups. @throws while the target or its runtime cannot be asked; the next call asks again. */
export type OpenNodeCgroups = (signal: AbortSignal) => Promise<NodeCgroups>;

/** The runtime may take so long to tell its cgroup driver, milliseconds. */
const longestMs = 120_000;

/** Opens the target's cgroups once, for all who change them. */
export function createNodeCgroups(deps: NodeCgroupsDeps): OpenNodeCgroups {
  const { host, clock } = deps;
  let known: NodeCgroups | undefined;
  const opening = createSharedWork<NodeCgroups>(clock, longestMs);
  const open = async (signal: AbortSignal): Promise<NodeCgroups> => {
    const version = await cgroupVersion(host.fs, signal);
    const layout = await deps.layout(signal);
    const cgroups = measured(await openCgroupsOf({ ...layout, version }, { host, clock }, signal), deps);
    known = { cgroups, layout, version };
    return known;
  };
  return async (signal) => known ?? opening(open, signal);
}

/** The same cgroups; how long changes of them take is told. */
function measured(cgroups: Cgroups, { measures, clock }: Pick<NodeCgroupsDeps, "measures" | "clock">): Cgroups {
  const timing = (operation: CgroupOperation, change: () => Promise<void>): Promise<void> =>
    timed(clock, change, (ms) => measures.changed(operation, ms));
  return {
    ...cgroups,
    make: (...of) => timing("create", () => cgroups.make(...of)),
    ensure: (...of) => timing("update", () => cgroups.ensure(...of)),
    remove: (...of) => timing("destroy", () => cgroups.remove(...of)),
  };
}
