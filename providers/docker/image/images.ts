import type { ImageInfo } from "dockerode";
import { CodedError, ignoreNotFound } from "../../../src/lib/errors.ts";
import type { Images } from "../../../src/seams/runtime.ts";
import { qualifiedImageName, imageRefOf, isImageId } from "./reference.ts";
import { criImage, inspectImage, lookupName, taggedNames } from "./inspect.ts";
import type { DockerParts } from "../parts.ts";
import { localPauseImage } from "../config.ts";
import { pull } from "./pull.ts";
import { FilesystemUsage, ImageFsInfoResponse } from "../../../src/gen/cri.ts";
import { compareVersions } from "../client/api-version.ts";
import { createLayersDirectory } from "../client/layers-directory.ts";
import { findContainers } from "../container/own.ts";
import { createSlowMeasurement } from "../client/slow-measurement.ts";

/** The daemon's images, including those of its other users. */
export function dockerImages(parts: DockerParts): Images {
  const { docker, config, cache } = parts;
  const pinned = new Set([config.sandboxImage, localPauseImage].map(qualifiedImageName));
  return {
    imageFsInfo: createImageFs(parts),
    listImages: cache.cached(async (signal) => {
      const images = await docker.request<ImageInfo[]>({ path: "/images/json" }, signal);
      return images.map((image) => criImage(image, pinned));
    }),
    async imageStatus({ image }, signal) {
      const found = await inspectImage(parts, image, signal);
      return found && criImage(found, pinned);
    },
    async pullImage({ image, auth }, signal, onProgress) {
      const name = image?.image ?? "";
      await pull(parts, { image: name, auth, onProgress }, signal);
      const pulled = await inspectImage(parts, name, signal);
      if (!pulled) throw new CodedError("not_found", `image "${name}" was removed right after the pull`);
      return imageRefOf(pulled, name);
    },
    removeImage: ({ image }, signal) => removeImage(parts, image, signal),
  };
}

interface DiskUsage {
  /** Bytes of all layers; shared layers count once. */
  readonly LayersSize?: number;
}

/** First API version that can report images alone; earlier daemons also walk containers and volumes. */
const apiWithType = "1.42";

/** Filesystem usage of images and containers, which share a directory. The images' usage is omitted until it has been
 *  measured. */
function createImageFs(parts: DockerParts): (signal: AbortSignal) => Promise<ImageFsInfoResponse> {
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
  const layersDirectory = createLayersDirectory(parts);
  return async (signal) => {
    const [{ path, isProvisional }, used] = await Promise.all([layersDirectory(signal), usage(signal)]);
    const fsId = { mountpoint: path };
    const bytes = used?.value.LayersSize;
    const images = FilesystemUsage.fromPartial({
      timestamp: BigInt(used?.at ?? clock.now()) * 1_000_000n,
      fsId,
      ...(bytes !== undefined && { usedBytes: { value: BigInt(bytes) } }),
    });
    const containers = FilesystemUsage.fromPartial({ timestamp: images.timestamp, ...(!isProvisional && { fsId }) });
    return ImageFsInfoResponse.fromPartial({ imageFilesystems: [images], containerFilesystems: [containers] });
  };
}

type RemoveImageDeps = Pick<DockerParts, "docker">;

/** Removes an image. An ID removes the image with all of its names, as in CRI; a name removes only that name, and with the last
 *  name the image. A missing image counts as removed. Never forces: an image used by any container keeps all its names.
 *  @throws CodedError conflict, with that container's name. */
export async function removeImage(parts: RemoveImageDeps, image: string, signal: AbortSignal): Promise<void> {
  const found = await inspectImage(parts, image, signal);
  if (!found) return;
  await rejectInUse(parts, found.Id, signal);
  // Removing a repository's last tag removes its digests; removing the last name removes the image.
  const names = isImageId(image)
    ? [...taggedNames(found.RepoTags), ...taggedNames(found.RepoDigests), found.Id]
    : [lookupName(image)];
  for (const name of names)
    await ignoreNotFound(parts.docker.request({ method: "DELETE", path: `/images/${name}` }, signal));
}

async function rejectInUse({ docker }: RemoveImageDeps, id: string, signal: AbortSignal): Promise<void> {
  const users = await findContainers(docker, { ancestor: [id] }, signal);
  const user = users.find(({ ImageID }) => ImageID === id);
  if (user) throw new CodedError("conflict", `image ${id} is used by container ${user.Names[0]?.slice(1) ?? user.Id}`);
}
