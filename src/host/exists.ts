import { posix } from "node:path";
import { ignoreCode, ignoreNotFound } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** True if a path exists on the target, following symlinks; a path that this user cannot access counts as missing. @throws
 *  CodedError, such as unavailable, if the target cannot be queried. */
export async function exists(fs: Pick<HostFs, "stat">, path: string, signal: AbortSignal): Promise<boolean> {
  return (await ignoreCode(fs.stat(path, signal), "not_found", "permission_denied")) !== undefined;
}

/** cgroup version of the target's resource controllers; v1 on hybrid machines.
 *  @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export async function cgroupVersion(fs: Pick<HostFs, "stat">, signal: AbortSignal): Promise<1 | 2> {
  return (await exists(fs, "/sys/fs/cgroup/cgroup.controllers", signal)) ? 2 : 1;
}

/** Path of the reading process's own memory.swap.max, which exists if cgroup v2 limits swap. The root cgroup has none. */
export async function swapFileV2(fs: Pick<HostFs, "readFile">, signal: AbortSignal): Promise<string> {
  const groups = (await ignoreNotFound(fs.readFile("/proc/self/cgroup", { signal })))?.toString() ?? "";
  return posix.join("/sys/fs/cgroup", /^0::(.*)$/m.exec(groups)?.[1] ?? "", "memory.swap.max");
}

/** True if the target has SELinux. */
export function hasSelinux(fs: Pick<HostFs, "stat">, signal: AbortSignal): Promise<boolean> {
  return exists(fs, "/sys/fs/selinux/enforce", signal);
}
