import type { Cgroups } from "../host/cgroups.ts";
import { cgroupVersion } from "../host/exists.ts";
import { mayMount } from "../host/mounts.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createSharedPromise } from "../lib/shared-promise.ts";
import { timed } from "../lib/timed.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { Host } from "../seams/host.ts";
import { openCgroupsOf } from "./cgroup-driver.ts";
import { type FormerCgroups, findFormerCgroups } from "./previous-driver-cgroups.ts";

/** Operations on cgroups. */
export type CgroupOperation = "create" | "update" | "destroy";

/** Cgroups of the node. */
export interface CgroupMeasures {
  changed(operation: CgroupOperation, ms: number): void;
  /** Memory reservations for Guaranteed and Burstable pods, bytes. */
  memoryReserved(guaranteed: number, burstable: number): void;
  /** The runtime does not support the RuntimeConfig call. */
  runtimeOutdated(): void;
}

export interface NodeCgroupsDeps {
  readonly host: Host;
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly rootDir: string;
  readonly measures: CgroupMeasures;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The target's cgroups, and the layout of pod cgroups. */
export interface NodeCgroups {
  readonly cgroups: Cgroups;
  readonly layout: CgroupLayout;
  readonly version: 1 | 2;
  /** Set if pods are running in cgroups of a different cgroup driver. */
  readonly former?: FormerCgroups | undefined;
}

/** Opens the target's cgroups. @throws while the target or its runtime is unavailable; the next call retries. */
export type OpenNodeCgroups = (signal: AbortSignal) => Promise<NodeCgroups>;

/** Timeout for asking the runtime for its cgroup driver, milliseconds. */
const timeoutMs = 120_000;

/** Creates the shared access to the target's cgroups, which are opened once. */
export function createNodeCgroups(deps: NodeCgroupsDeps): OpenNodeCgroups {
  const { host, clock } = deps;
  let known: NodeCgroups | undefined;
  const opening = createSharedPromise<NodeCgroups>(clock, timeoutMs);
  const open = async (signal: AbortSignal): Promise<NodeCgroups> => {
    const version = await cgroupVersion(host.fs, signal);
    const layout = await deps.layout(signal);
    const cgroups = measured(await openCgroupsOf({ ...layout, version }, { host, clock }, signal), deps);
    const former = await findFormerCgroups({ ...deps, layout, version }, signal);
    known = { cgroups, layout, version, former };
    return known;
  };
  return async (signal) => known ?? opening(open, signal);
}

/** Measures changes of cgroups. For a privileged user, permission_denied becomes failed_precondition: its cause is a read-only
 *  file system. */
function measured(cgroups: Cgroups, { host, measures, clock }: NodeCgroupsDeps): Cgroups {
  const translateError = async (error: unknown) => {
    if (!hasCode(error, "permission_denied") || !(await mayMount(host))) throw error;
    throw new CodedError("failed_precondition", messageOf(error), { cause: error });
  };
  const timeOperation = <T>(operation: CgroupOperation, change: () => Promise<T>): Promise<T> =>
    timed(
      clock,
      () => change().catch(translateError),
      (ms) => measures.changed(operation, ms),
    );
  return {
    ...cgroups,
    create: (...of) => timeOperation("create", () => cgroups.create(...of)),
    ensure: (...of) => timeOperation("update", () => cgroups.ensure(...of)),
    remove: (...of) => timeOperation("destroy", () => cgroups.remove(...of)),
  };
}
