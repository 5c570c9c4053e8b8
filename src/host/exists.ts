import { unlessCode } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** Whether a path leads to anything on the target; one that this user may not see counts as not there.
 *  @throws CodedError unavailable and the like when the target cannot be asked. */
export async function exists(fs: Pick<HostFs, "stat">, path: string, signal: AbortSignal): Promise<boolean> {
  return (await unlessCode(fs.stat(path, signal), "not_found", "permission_denied")) !== undefined;
}

/** Which cgroups the target's resource controllers are in; version 1 where a machine has both.
 *  @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export async function cgroupVersion(fs: Pick<HostFs, "stat">, signal: AbortSignal): Promise<1 | 2> {
  return (await exists(fs, "/sys/fs/cgroup/cgroup.controllers", signal)) ? 2 : 1;
}
