import { posix } from "node:path";
import type { Cgroups } from "../host/cgroups.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type CgroupLayout, podCgroup, kubepodsCgroup, qosCgroup } from "../pod/cgroup-path.ts";
import type { QosClass } from "../pod/qos.ts";
import type { Host } from "../seams/host.ts";
import { openCgroupsOf } from "./cgroup-driver.ts";

export interface FormerCgroupsDeps {
  readonly host: Host;
  readonly rootDir: string;
  readonly layout: CgroupLayout;
  readonly version: 1 | 2;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Cgroups of pods that were created by a different cgroup driver. */
export interface FormerCgroups {
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
  const directories = (await ignoreNotFound(host.fs.list(`${rootDir}/pods`, signal))) ?? [];
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
