import type { StorageDrivers } from "../drivers.ts";
import { NodeGetVolumeStatsRequest, type NodeGetVolumeStatsResponse, VolumeUsage_Unit as Unit } from "../gen/csi.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { PersistentPlace } from "../pipeline.ts";
import type { DiskUse } from "./disk-figures.ts";

export interface DriverSpaceDeps {
  readonly drivers: Pick<StorageDrivers, "driver">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A volume that only its storage driver knows. */
type DriverVolume = Exclude<PersistentPlace["space"], "fileSystem" | undefined>;

/** Space of a driver's volume. @param path of the volume in a pod. @returns undefined where the driver does not tell it. */
export type DriverSpace = (path: string, volume: DriverVolume) => Promise<DiskUse | undefined>;

/** Age up to which an answer counts, milliseconds: a kubelet asks once in so long. */
const freshMs = 60_000;

/** Asks storage drivers for the space of their volumes, when somebody wants to know, and at most once a minute each.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodegetvolumestats */
export function createDriverSpace({ drivers, clock, log }: DriverSpaceDeps): DriverSpace {
  const known = new Map<string, { readonly until: number; readonly use: Promise<DiskUse | undefined> }>();
  const ask = async (volumePath: string, { driver, volumeHandle }: DriverVolume) => {
    const request = NodeGetVolumeStatsRequest.fromPartial({ volumeId: volumeHandle, volumePath });
    try {
      return figures(await drivers.driver(driver).stats(request), clock.now());
    } catch (error) {
      log.warn(
        { driver, volumeHandle, why: messageOf(error) },
        "a storage driver does not tell the space of its volume",
      );
      return undefined;
    }
  };
  return (path, volume) => {
    const now = clock.monotonic();
    for (const [other, { until }] of known) if (until <= now) known.delete(other);
    const last = known.get(path) ?? { until: now + freshMs, use: ask(path, volume) };
    known.set(path, last);
    return last.use;
  };
}

/** Figures of a driver's answer; undefined when it has none. Pure. */
function figures({ usage }: NodeGetVolumeStatsResponse, at: number): DiskUse | undefined {
  if (usage.length === 0) return undefined;
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
  };
}
