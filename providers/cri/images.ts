import {
  ImageFsInfoRequest,
  ListImagesRequest,
  type ImageSpec,
  ImageServiceService as imageService,
} from "../../src/gen/cri.ts";
import { hasCode } from "../../src/lib/errors.ts";
import type { Images } from "../../src/seams/runtime.ts";
import type { GrpcChannel } from "./client.ts";
import { createSandboxImagePinner } from "./sandbox-image.ts";

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
