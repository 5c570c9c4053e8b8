import { FilesystemUsage, ImageFsInfoResponse } from "../../../src/gen/cri.ts";
import { compareVersions } from "../client/api-version.ts";
import { engineInfo } from "../client/engine-info.ts";
import type { DockerParts } from "../parts.ts";
import { createSlowMeasurement } from "../client/slow-measurement.ts";

interface DiskUsage {
  /** Bytes of all layers; shared layers count once. */
  readonly LayersSize?: number;
}

/** First API version that can report images alone; earlier daemons also walk containers and volumes. */
const apiWithType = "1.42";

/** Filesystem usage of images and containers, both below the daemon's data directory. The images' usage is omitted until
 *  it has been read. */
export function createImageFs(parts: DockerParts): (signal: AbortSignal) => Promise<ImageFsInfoResponse> {
  const { docker, clock, log } = parts;
  const usage = createSlowMeasurement({
    what: "image disk usage",
    read: async (signal) => {
      const imagesAlone = compareVersions(await docker.apiVersion(signal), apiWithType) >= 0;
      const query = imagesAlone ? { query: { type: "image" } } : {};
      return docker.request<DiskUsage>({ path: "/system/df", ...query }, signal, "none");
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
