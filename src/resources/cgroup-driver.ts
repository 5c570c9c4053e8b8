import { type Cgroups, openCgroups } from "../host/cgroups.ts";
import { openSystemdCgroups } from "../host/systemd/cgroups.ts";
import type { Clock } from "../lib/clock.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { Host } from "../seams/host.ts";

/** The target's cgroups of a version, by the driver of the layout. A connection to systemd ends by itself when unused, or by
 *  disposal. */
export async function openCgroupsOf(
  { driver, version }: Pick<CgroupLayout, "driver"> & { readonly version: 1 | 2 },
  { host, clock }: { readonly host: Host; readonly clock: Clock },
  signal: AbortSignal,
): Promise<Cgroups & AsyncDisposable> {
  if (driver === "systemd") return openSystemdCgroups({ host, version, clock }, signal);
  return { ...(await openCgroups(host, version, signal)), [Symbol.asyncDispose]: async () => {} };
}
