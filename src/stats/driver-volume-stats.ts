import {
  NodeGetVolumeStatsRequest,
  NodeServiceCapability_RPC_Type as Capability,
  type NodeGetVolumeStatsResponse,
  VolumeUsage_Unit as Unit,
} from "../gen/csi.ts";
import { parseStatfs, statfsFormat } from "../host/statfs.ts";
import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { PersistentVolumeFacts, CsiDrivers } from "../pipeline.ts";
import type { Host } from "../seams/host.ts";
import { timed } from "../lib/timed.ts";
import { type DiskUse, totalUse } from "./disk-stats.ts";
import { command, commandWithoutDashes } from "../seams/command.ts";

/** Records how long it takes to read volumes' usage. */
export interface VolumeStatsMeasures {
  /** @param source the driver, or the kind of command: `statfs`, `block`. */
  statsRead(source: string, ms: number): void;
}

export interface DriverVolumeStatsDeps extends ClockAndLog {
  readonly measures: VolumeStatsMeasures;
  readonly host: Pick<Host, "run">;
  readonly drivers: Pick<CsiDrivers, "driver">;
  /** True to also query the health of volumes (feature gate CSIVolumeHealth). */
  readonly queryHealth: boolean;
}

/** A volume whose usage cannot be read with statfs: only its CSI driver knows it, its server may be gone, or it is a block
 *  device. */
type CsiVolume = Exclude<PersistentVolumeFacts["space"], "fileSystem" | undefined>;

/** Usage of a driver's volume. @param path of the volume in a pod; a volume's `at` overrides it in the driver's request, for a
 *  block device on the node. @returns undefined if the driver does not report it. */
export type DriverVolumeStats = (path: string, volume: CsiVolume) => Promise<DiskUse | undefined>;

/** Timeout of a command, milliseconds: a file system's server may be gone. */
const commandTimeoutMs = 5_000;
/** Maximum age of a cached response, milliseconds: the kubelet's query interval. */
const maxAgeMs = 60_000;

/** Queries CSI drivers for the usage of their volumes: on demand, and at most once a minute per volume.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodegetvolumestats */
export function createDriverVolumeStats({
  host,
  drivers,
  queryHealth,
  measures,
  clock,
  log,
}: DriverVolumeStatsDeps): DriverVolumeStats {
  const known = new Map<string, { readonly until: number; readonly use: Promise<DiskUse | undefined> }>();
  const measure = async (path: string, read: typeof statfsByCommand) => {
    try {
      return await read(host, path, clock.now());
    } catch (error) {
      log.warn({ path, why: messageOf(error) }, "cannot read the usage of a volume");
      return undefined;
    }
  };
  const query = async (volumePath: string, volume: CsiVolume) => {
    if (volume === "remote") return measure(volumePath, statfsByCommand);
    if (volume === "device") return measure(volumePath, sizeByCommand);
    const { driver, volumeHandle, at = volumePath } = volume;
    const request = NodeGetVolumeStatsRequest.fromPartial({ volumeId: volumeHandle, volumePath: at });
    try {
      const registered = drivers.driver(driver);
      const answer = await registered.stats(request);
      const tellsHealth = queryHealth && (await registered.capabilities()).has(Capability.VOLUME_CONDITION);
      return diskUseOf(answer, tellsHealth, clock.now());
    } catch (error) {
      log.warn({ driver, volumeHandle, why: messageOf(error) }, "CSI driver did not report the usage of a volume");
      return undefined;
    }
  };
  return (path, volume) => {
    const now = clock.monotonic();
    for (const [other, { until }] of known) if (until <= now) known.delete(other);
    const source = volume === "remote" ? "statfs" : volume === "device" ? "block" : volume.driver;
    const read = () =>
      timed(
        clock,
        () => query(path, volume),
        (ms) => measures.statsRead(source, ms),
      );
    const last = known.get(path) ?? { until: now + maxAgeMs, use: read() };
    known.set(path, last);
    return last.use;
  };
}

/** Usage of a file system, read with a command, which can be killed if the server does not answer.
 *  @throws deadline_exceeded. */
async function statfsByCommand({ run }: Pick<Host, "run">, path: string, at: number): Promise<DiskUse | undefined> {
  const argv = command("stat", ["-f", ["-c", statfsFormat]], [path]);
  const { code, stdout } = await run(argv, { timeoutMs: commandTimeoutMs });
  const info = code === 0 ? parseStatfs(stdout) : undefined;
  return info && totalUse(info, at);
}

/** Size of a block device only: its content is up to its user. @throws deadline_exceeded. */
async function sizeByCommand({ run }: Pick<Host, "run">, path: string, at: number): Promise<DiskUse | undefined> {
  const { code, stdout } = await run(commandWithoutDashes("blockdev", ["--getsize64"], [path]), {
    timeoutMs: commandTimeoutMs,
  });
  if (code !== 0) return undefined;
  const nothing = { availableBytes: 0, usedBytes: 0, inodes: 0, inodesFree: 0, inodesUsed: 0 };
  return { at, device: "", capacityBytes: Number(stdout.trim()), ...nothing };
}

/** Converts a driver's response; undefined if it has no usage. Pure. */
function diskUseOf(
  { usage, volumeCondition }: NodeGetVolumeStatsResponse,
  reportsHealth: boolean,
  at: number,
): DiskUse | undefined {
  if (usage.length === 0 && !reportsHealth) return undefined;
  const { abnormal = false, message = "" } = volumeCondition ?? {};
  const of = (unit: Unit) => usage.findLast((one) => one.unit === unit);
  const [bytes, inodes] = [of(Unit.BYTES), of(Unit.INODES)];
  return {
    at,
    device: "",
    capacityBytes: Number(bytes?.total ?? 0n),
    availableBytes: Number(bytes?.available ?? 0n),
    usedBytes: Number(bytes?.used ?? 0n),
    inodes: Number(inodes?.total ?? 0n),
    inodesFree: Number(inodes?.available ?? 0n),
    inodesUsed: Number(inodes?.used ?? 0n),
    ...(reportsHealth && { condition: { abnormal, message } }),
  };
}
