import { FilesystemUsage, ImageFsInfoResponse } from "../../../src/gen/cri.ts";
import { compareVersions } from "../client/api-version.ts";
import { engineInfo } from "../client/engine-info.ts";
import type { DockerParts } from "../parts.ts";
import { createSlowReading } from "../client/slow-reading.ts";

interface DiskUsage {
  /** Bytes of all layers, shared ones once. */
  readonly LayersSize?: number;
}

/** Since this version the daemon can be asked for images alone; before, it walks over containers and volumes as well. */
const apiWithType = "1.42";

/** Images and containers lie side by side below the daemon's data directory. What images use is left out until it has been
 *  read. */
export function createImageFs(parts: DockerParts): (signal: AbortSignal) => Promise<ImageFsInfoResponse> {
  const { docker, clock, log } = parts;
  const usage = createSlowReading({
    what: "the disk usage of images",
    read: async (signal) => {
      const imagesAlone = compareVersions(await docker.apiVersion(signal), apiWithType) >= 0;
      const query = imagesAlone ? { query: { type: "image" } } : {};
      return docker.ask<DiskUsage>({ path: "/system/df", ...query }, signal, "none");
    },
    clock,
    log,
  });
  return async (signal) => {
    const [{ DockerRootDir }, used] = await Promise.all([engineInfo(parts, signal), usage(signal)]);
    const fsId = { mountpoint: DockerRootDir };
    const bytes = used?.value.LayersSize;
    const images = FilesystemUsage.fromPartial({
      timestamp: BigInt(used?.at ?? clock.now()) * 1_000_000n,
      fsId,
      ...(bytes !== undefined && { usedBytes: { value: BigInt(bytes) } }),
    });
    const containers = FilesystemUsage.fromPartial({ timestamp: images.timestamp, fsId });
    return ImageFsInfoResponse.fromPartial({ imageFilesystems: [images], containerFilesystems: [containers] });
  };
}
