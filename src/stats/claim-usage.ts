import type { Clock } from "../lib/clock.ts";
import { ignoreCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import type { PodCache, PodStore, VolumeMounter } from "../pipeline.ts";
import type { Host } from "../seams/host.ts";
import { type VolumeDiskUse, totalUse } from "./disk-stats.ts";
import type { DriverVolumeStats } from "./driver-volume-stats.ts";
import { type Family, exposition } from "./exposition.ts";
import { runningPods } from "./running-pods.ts";
import { claimNameOf } from "../pod/migrated-volume.ts";

export interface ClaimUsageDeps {
  readonly host: Pick<Host, "fs">;
  readonly desired: Pick<PodStore, "get">;
  readonly volumes: Pick<VolumeMounter, "mounted">;
  readonly driverVolumeStats: DriverVolumeStats;
  readonly clock: Clock;
}

interface MetricsDeps extends ClaimUsageDeps {
  readonly podCache: PodCache;
  readonly log: Logger;
}

/** Usage of a pod's persistent volume claims, from their own file system or their CSI driver. */
export async function claimUsage(
  { host, volumes, driverVolumeStats, clock }: Omit<ClaimUsageDeps, "pods">,
  pod: Pod,
  signal: AbortSignal,
): Promise<readonly VolumeDiskUse[]> {
  const mounted = volumes.mounted(pod.metadata.uid);
  const { namespace } = pod.metadata;
  const ofFileSystem = async (path: string) => {
    const space = await ignoreCode(host.fs.fileSystemInfo(path, signal), "not_found", "permission_denied");
    return space && totalUse(space, clock.now());
  };
  const uses = (pod.spec.volumes ?? []).map(async (volume): Promise<readonly VolumeDiskUse[]> => {
    const { hostPath, persistent } = mounted.get(volume.name) ?? {};
    const name = claimNameOf(pod, volume);
    if (hostPath === undefined || !persistent?.space) return [];
    const use = await (persistent.space === "fileSystem"
      ? ofFileSystem(hostPath)
      : driverVolumeStats(hostPath, persistent.space));
    return use ? [{ name: volume.name, use, ...(name !== undefined && { claim: { name, namespace } }) }] : [];
  });
  return (await Promise.all(uses)).flat();
}

const series: readonly (readonly [
  name: string,
  help: string,
  value: (use: VolumeDiskUse["use"]) => number | undefined,
])[] = [
  ["capacity_bytes", "Capacity in bytes of the volume", ({ capacityBytes }) => capacityBytes],
  ["available_bytes", "Number of available bytes in the volume", ({ availableBytes }) => availableBytes],
  ["used_bytes", "Number of used bytes in the volume", ({ usedBytes }) => usedBytes],
  ["inodes", "Maximum number of inodes in the volume", ({ inodes }) => inodes],
  ["inodes_free", "Number of free inodes in the volume", ({ inodesFree }) => inodesFree],
  ["inodes_used", "Number of used inodes in the volume", ({ inodesUsed }) => inodesUsed],
];

/** Health of claims whose drivers report it. Pure. */
function healthOf(volumes: readonly Required<Pick<VolumeDiskUse, "claim" | "use">>[]): Family {
  return {
    name: "kubelet_volume_stats_health_status_abnormal",
    help: "Abnormal volume health status: 1 if the volume is unhealthy, 0 if it is healthy",
    type: "gauge",
    samples: volumes.flatMap(({ claim: { namespace, name }, use: { condition } }) =>
      condition ? [{ labels: { namespace, persistentvolumeclaim: name }, value: Number(condition.abnormal) }] : [],
    ),
  };
}

/** kubelet_volume_stats_* of the claims of running pods, one series per claim; empty without claims, or if they cannot be
 *  measured.
 *  @see https://kubernetes.io/docs/reference/instrumentation/metrics/ */
export async function claimMetrics(deps: MetricsDeps, signal: AbortSignal): Promise<string> {
  const pods = runningPods(deps.podCache).flatMap(({ uid }) => deps.desired.get(uid) ?? []);
  const measured = Promise.all(pods.map((pod) => claimUsage(deps, pod, signal)));
  const all = await measured.catch((error: unknown) => {
    if (!signal.aborted) deps.log.warn({ err: error }, "cannot measure volume usage");
    return [];
  });
  const each = new Map(
    all.flat().flatMap(({ claim, use }) => (claim ? [[`${claim.namespace}/${claim.name}`, { claim, use }]] : [])),
  );
  if (each.size === 0) return "";
  const families = series.map(
    ([name, help, value]): Family => ({
      name: `kubelet_volume_stats_${name}`,
      help,
      type: "gauge",
      samples: [...each.values()].map(({ claim, use }) => ({
        labels: { namespace: claim.namespace, persistentvolumeclaim: claim.name },
        value: value(use) ?? 0,
      })),
    }),
  );
  return exposition([...families, healthOf([...each.values()])]);
}
