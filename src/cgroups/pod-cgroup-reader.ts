import { readCgroups } from "../host/cgroup-readings.ts";
import { type GroupUsage, groupUsage } from "../host/cgroup-usage.ts";
import type { CgroupLimits } from "../host/cgroups.ts";
import { ignoreCode } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import type { Stats } from "../seams/runtime.ts";

export interface PodCgroupReaderDeps {
  readonly host: Pick<Host, "run">;
  readonly runtime: Pick<Stats, "containerStats">;
  readonly version: 1 | 2;
}

/** Reads the limits of a pod's cgroup, and the memory usage of the pod and its containers, in one command; for a container whose cgroup is
 *  elsewhere, the runtime is asked. @param path absolute path of the pod's cgroup. @param ids of running containers. */
export async function readPodCgroup(
  { host, runtime, version }: PodCgroupReaderDeps,
  path: string,
  ids: readonly string[],
  signal: AbortSignal,
) {
  const { groups } = await readCgroups(host, version, [{ path, containerIds: ids }], signal);
  const usage = (name: string): GroupUsage => groupUsage(groups.get(name) ?? new Map(), version);
  const used = new Map<string, number>();
  for (const id of ids) {
    const own = [...groups.keys()].find((name) => name.endsWith(`/${id}`) || name.endsWith(`-${id}.scope`));
    const bytes =
      (own === undefined ? undefined : usage(own).memory?.usage) ?? (await reportedUsage(runtime, id, signal));
    if (bytes !== undefined) used.set(id, bytes);
  }
  const { memory, cpu } = usage(path);
  const limits: CgroupLimits = {
    ...(memory?.limit !== undefined && { memoryBytes: memory.limit }),
    ...(memory?.swapLimit !== undefined && { swapBytes: memory.swapLimit }),
    ...(cpu?.quotaUs !== undefined && { cpuQuotaUs: cpu.quotaUs }),
    ...(cpu?.periodUs !== undefined && { cpuPeriodUs: cpu.periodUs }),
    ...(cpu?.shares !== undefined && { cpuShares: cpu.shares }),
  };
  return { isThere: groups.has(path), limits, ...(memory && { memory: memory.usage }), containers: used };
}

async function reportedUsage(runtime: PodCgroupReaderDeps["runtime"], id: string, signal: AbortSignal) {
  const stats = await ignoreCode(runtime.containerStats(id, signal), "not_found", "unimplemented");
  const bytes = stats?.memory?.usageBytes ?? stats?.memory?.workingSetBytes;
  return bytes && Number(bytes.value);
}
