import {
  ImageFsInfoRequest,
  ListImagesRequest,
  type ImageSpec,
  ImageServiceService as imageService,
  type Image,
} from "../../src/gen/cri.ts";
import { hasCode } from "../../src/lib/errors.ts";
import type { Images } from "../../src/seams/runtime.ts";
import type { GrpcChannel } from "./client.ts";
import { parseImageName } from "../../src/pod/image-name.ts";
import { readReportedConfig } from "./reported-config.ts";

/** Images over CRI's image service. @param runtime the runtime service, which knows the sandbox image. */
export function criImages(images: GrpcChannel, runtime: GrpcChannel): Images {
  const pinSandboxImage = createSandboxImagePinner(runtime);
  return {
    async listImages(signal) {
      const listed = await images.call(imageService.listImages, ListImagesRequest.fromPartial({}), signal);
      return pinSandboxImage(listed.images, signal);
    },
    async imageStatus(image, signal) {
      return (await images.call(imageService.imageStatus, { image, verbose: false }, signal)).image;
    },
    async pullImage(request, signal) {
      return (await images.call(imageService.pullImage, request, signal, "none")).imageRef;
    },
    /** An image that is already gone counts as removed. */
    async removeImage(image: ImageSpec, signal) {
      try {
        await images.call(imageService.removeImage, { image }, signal);
      } catch (error) {
        if (!hasCode(error, "not_found")) throw error;
      }
    },
    imageFsInfo: (signal) => images.call(imageService.imageFsInfo, ImageFsInfoRequest.fromPartial({}), signal),
  };
}

/** Marks the runtime's sandbox image as pinned if the runtime does not do so itself; without that image no pod starts. containerd 1.6
 *  reports the name only in its status's configuration. The name is read once; runtimes that pin images themselves are not asked. */
function createSandboxImagePinner(
  runtime: GrpcChannel,
): (images: readonly Image[], signal: AbortSignal) => Promise<readonly Image[]> {
  let known: { readonly name: string | undefined } | undefined;
  return async (images, signal) => {
    if (images.length === 0 || images.some(({ pinned }) => pinned)) return images;
    known ??= { name: fullName((await readReportedConfig(runtime, signal))?.sandboxImage) };
    const { name } = known;
    if (name === undefined) return images;
    const isSandboxImage = ({ repoTags, repoDigests }: Image) => repoTags.includes(name) || repoDigests.includes(name);
    return images.map((image) => (isSandboxImage(image) ? { ...image, pinned: true } : image));
  };
}

/** The image's full name; undefined for an invalid name. */
function fullName(image: unknown): string | undefined {
  if (typeof image !== "string") return undefined;
  try {
    const { repository, tag, digest } = parseImageName(image);
    return digest ? `${repository}@${digest}` : `${repository}:${tag}`;
  } catch {
    return undefined;
  }
}
