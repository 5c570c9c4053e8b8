import type { ImageInfo } from "dockerode";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Images } from "../../../src/seams/runtime.ts";
import { createImageFs } from "./filesystem.ts";
import { fullName, imageRefOf } from "./reference.ts";
import { criImage, inspectImage } from "./inspect.ts";
import type { DockerParts } from "../parts.ts";
import { localPauseImage } from "../config.ts";
import { pull } from "./pull.ts";
import { removeImage } from "./remove.ts";

/** All images of the daemon, including those of other users. */
export function dockerImages(parts: DockerParts): Images {
  const { docker, config, cache } = parts;
  const pinned = new Set([config.sandboxImage, localPauseImage].map(fullName));
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
