import { FilesystemUsage, ImageFsInfoResponse } from "../../../src/gen/cri.ts";
import { ask } from "../client/client.ts";
import { engineInfo } from "../client/engine-info.ts";
import type { DockerParts } from "../parts.ts";
import { createSlowReading } from "../client/slow-reading.ts";

interface DiskUsage {
  /** Bytes of all layers, shared ones once. */
  readonly LayersSize?: number;
}

/** Since this version the daemon can be asked for images alone; before, it walks over containers and volumes as well. */
const apiWithType = [1, 42] as const;

/** Images and containers lie side by side below the daemon's data directory. What images use is left out until it has been
 *  read. */
export function createImageFs(parts: DockerParts): (signal: AbortSignal) => Promise<ImageFsInfoResponse> {
  const { docker, clock, log } = parts;
  const usage = createSlowReading({
    what: "the disk usage of images",
    read: async (signal) => {
      const query: Readonly<Record<string, string>> = atLeast(await docker.apiVersion(signal), apiWithType)
        ? { type: "image" }
        : {};
      return docker.call(
        (engine, abortSignal) => ask<DiskUsage>(engine, { path: "/system/df", query, signal: abortSignal }),
        signal,
        "none",
      );
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

function atLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [theirMajor = 0, theirMinor = 0] = version.split(".").map(Number);
  return theirMajor > major || (theirMajor === major && theirMinor >= minor);
}
