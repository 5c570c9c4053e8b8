import { unlessCode } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** True when a path exists on the target, links followed; a path hidden from this user counts as missing.
 *  @throws CodedError unavailable and the like when the target cannot be asked. */
export async function exists(fs: Pick<HostFs, "stat">, path: string, signal: AbortSignal): Promise<boolean> {
  return (await unlessCode(fs.stat(path, signal), "not_found", "permission_denied")) !== undefined;
}

/** cgroup version of the target's resource controllers; version 1 on hybrid machines.
 *  @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export async function cgroupVersion(fs: Pick<HostFs, "stat">, signal: AbortSignal): Promise<1 | 2> {
  return (await exists(fs, "/sys/fs/cgroup/cgroup.controllers", signal)) ? 2 : 1;
}
