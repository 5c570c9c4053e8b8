import { posix } from "node:path";
import type { Cgroups } from "../host/cgroups.ts";
import { cgroupVersion } from "../host/exists.ts";
import { mayMount } from "../host/mounts.ts";
import { CodedError, hasCode, messageOf, ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createSharedPromise } from "../lib/single-flight.ts";
import { timed } from "../lib/timed.ts";
import { type CgroupLayout, podCgroup, kubepodsCgroup, qosCgroup } from "../pod/cgroup-path.ts";
import type { Host } from "../seams/host.ts";
import { openCgroupsOf } from "./cgroup-driver.ts";
import type { QosClass } from "../pod/qos.ts";
import { podsDirectory } from "../host/layout.ts";

/** Operations on cgroups. */
export type CgroupOperation = "create" | "update" | "destroy";

export interface CgroupMeasures {
  changed(operation: CgroupOperation, ms: number): void;
  /** Memory reservations for Guaranteed and Burstable pods, bytes. */
  memoryReserved(guaranteed: number, burstable: number): void;
  /** The runtime does not support the RuntimeConfig call. */
  runtimeOutdated(): void;
}

export interface NodeCgroupsDeps extends ClockAndLog {
  readonly host: Host;
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly rootDir: string;
  readonly measures: CgroupMeasures;
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

interface FormerCgroupsDeps extends ClockAndLog {
  readonly host: Host;
  readonly rootDir: string;
  readonly layout: CgroupLayout;
  readonly version: 1 | 2;
}

/** Cgroups of pods that were created by a different cgroup driver. */
interface FormerCgroups {
  /** Removes the cgroup of a terminated pod, and with the last one its parents. Idempotent. */
  remove(uid: string, signal: AbortSignal): Promise<void>;
}

const classes: readonly QosClass[] = ["BestEffort", "Burstable", "Guaranteed"];

/** Finds cgroups of the node's pods that were created before the target's cgroup driver was changed. The pods' containers stay in
 *  them until they end. @returns undefined if there are none, the usual case. */
export async function findFormerCgroups(
  deps: FormerCgroupsDeps,
  signal: AbortSignal,
): Promise<FormerCgroups | undefined> {
  const { host, rootDir, layout, log } = deps;
  if (!layout.perQos) return undefined;
  const former: CgroupLayout = { ...layout, driver: layout.driver === "systemd" ? "cgroupfs" : "systemd" };
  const directories = (await ignoreNotFound(host.fs.list(podsDirectory(rootDir), signal))) ?? [];
  if (directories.length === 0) return undefined;
  const cgroups = await openCgroupsOf({ ...former, version: deps.version }, deps, signal);
  const paths = new Map(directories.map(({ name }) => [name, classes.map((qos) => podCgroup(name, qos, former))]));
  const existing = await cgroups.identities([...paths.values()].flat(), signal);
  const remaining = new Map(
    [...paths].flatMap(([uid, all]) => all.flatMap((path) => (existing.has(path) ? [[uid, path] as const] : []))),
  );
  if (remaining.size === 0) return undefined;
  const change = { pods: remaining.size, was: former.driver, is: layout.driver };
  log.warn(change, "cgroup driver has changed; running pods keep their old cgroups until they end");
  return {
    async remove(uid, stop) {
      const path = remaining.get(uid);
      if (path === undefined) return;
      await cgroups.kill([path], stop);
      await cgroups.remove([path], stop);
      remaining.delete(uid);
      if (remaining.size === 0) await removeEmpty(cgroups, former, stop);
    },
  };
}

/** Removes the parent cgroups, unless another node has pods there. */
async function removeEmpty(cgroups: Cgroups, layout: CgroupLayout, signal: AbortSignal): Promise<void> {
  for (const path of [...classes.slice(0, 2).map((qos) => qosCgroup(qos, layout)), kubepodsCgroup(layout)]) {
    const siblings = await cgroups.children(posix.dirname(path), signal);
    if (!siblings.includes(posix.basename(path))) continue;
    if ((await cgroups.children(path, signal)).length > 0) return;
    await cgroups.remove([path], signal);
  }
}
