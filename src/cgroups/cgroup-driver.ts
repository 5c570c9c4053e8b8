import { type Cgroups, openCgroups } from "../host/cgroups.ts";
import { openSystemdCgroups } from "../host/systemd/cgroups.ts";
import type { Clock } from "../lib/clock.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { Host } from "../seams/host.ts";

/** Opens the target's cgroups with the layout's driver. A connection to systemd is closed when idle, and by
 *  disposal. */
export async function openCgroupsOf(
  { driver, version }: Pick<CgroupLayout, "driver"> & { readonly version: 1 | 2 },
  { host, clock }: { readonly host: Host; readonly clock: Clock },
  signal: AbortSignal,
): Promise<Cgroups & AsyncDisposable> {
  if (driver === "systemd") return openSystemdCgroups({ host, version, clock }, signal);
  return { ...(await openCgroups(host, version, signal)), [Symbol.asyncDispose]: async () => {} };
}
