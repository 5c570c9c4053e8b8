import {
  RuntimeServiceService as runtimeService,
  VersionRequest,
  type ContainerStatsFilter,
  ListContainerStatsRequest,
  ListPodSandboxStatsRequest,
  type PodSandboxStatsFilter,
  ImageFsInfoRequest,
  ListImagesRequest,
  type ImageSpec,
  ImageServiceService as imageService,
  type Image,
} from "../../src/gen/cri.ts";
import type { ClockAndLog } from "../../src/lib/log.ts";
import type { Host } from "../../src/seams/host.ts";
import type { Runtime, Stats, Images } from "../../src/seams/runtime.ts";
import { createGrpcChannel, type GrpcChannel } from "./client.ts";
import { criEvents } from "./events.ts";
import { criContainers, criSandboxes } from "./pods.ts";
import { criStreams } from "./streams.ts";
import { runtimeConfig, unsupportedReason, readReportedConfig } from "./reported-config.ts";
import { ignoreNotFound } from "../../src/lib/errors.ts";
import { parseImageName } from "../../src/pod/image-name.ts";

export interface CriRuntimeOptions extends ClockAndLog {
  /** Absolute paths of sockets on the target. */
  readonly runtimeSocket: string;
  readonly imageSocket: string;
  /** Deadline of an ordinary call, milliseconds (KubeletConfiguration.runtimeRequestTimeout). */
  readonly requestTimeoutMs: number;
  /** Headers for the next call. */
  readonly callHeaders?: () => Readonly<Record<string, string>>;
  /** Dials the sockets and the runtime's streaming URLs on the target. */
  readonly host: Pick<Host, "dial" | "forUsers" | "budget">;
}

/** The Runtime seam over a CRI v1 socket. Connects on first use; disposing closes the connections. */
export function criRuntime({
  runtimeSocket,
  imageSocket,
  requestTimeoutMs,
  callHeaders,
  host,
  clock,
  log,
}: CriRuntimeOptions): Runtime {
  const common = { host, requestTimeoutMs, ...(callHeaders && { callHeaders }), clock };
  const runtime = createGrpcChannel({ path: runtimeSocket, ...common });
  const images = createGrpcChannel({ path: imageSocket, ...common });
  return {
    version: (signal) => runtime.call(runtimeService.version, VersionRequest.fromPartial({}), signal),
    status: (signal) => runtime.call(runtimeService.status, { verbose: false }, signal),
    runtimeConfig: (signal) => runtimeConfig(runtime, signal),
    unsupportedReason: (feature, signal) => unsupportedReason(runtime, feature, signal),
    async updateRuntimeConfig(request, signal) {
      await runtime.call(runtimeService.updateRuntimeConfig, request, signal);
    },
    events: criEvents({ runtime, clock, log }),
    ...criSandboxes(runtime, requestTimeoutMs),
    ...criContainers(runtime, requestTimeoutMs),
    ...criImages(images, runtime),
    ...criStats(runtime),
    ...criStreams(runtime, host.forUsers ?? host),
    async [Symbol.asyncDispose]() {
      runtime.close();
      images.close();
    },
  };
}

/** Resource usage over CRI. Older runtimes answer the sandbox operations with `unimplemented`. */
function criStats(runtime: GrpcChannel): Required<Stats> {
  return {
    async containerStats(containerId, signal) {
      return (await runtime.call(runtimeService.containerStats, { containerId }, signal)).stats;
    },
    async listContainerStats(filter: ContainerStatsFilter | undefined, signal) {
      return (
        await runtime.call(runtimeService.listContainerStats, ListContainerStatsRequest.fromPartial({ filter }), signal)
      ).stats;
    },
    async podSandboxStats(podSandboxId, signal) {
      return (await runtime.call(runtimeService.podSandboxStats, { podSandboxId }, signal)).stats;
    },
    async listPodSandboxStats(filter: PodSandboxStatsFilter | undefined, signal) {
      return (
        await runtime.call(
          runtimeService.listPodSandboxStats,
          ListPodSandboxStatsRequest.fromPartial({ filter }),
          signal,
        )
      ).stats;
    },
  };
}

/** Images over CRI's image service. @param runtime the runtime service, which knows the sandbox image. */
function criImages(images: GrpcChannel, runtime: GrpcChannel): Images {
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
      await ignoreNotFound(images.call(imageService.removeImage, { image }, signal));
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

/** Returns the image's full name; undefined for an invalid name. */
function fullName(image: unknown): string | undefined {
  if (typeof image !== "string") return undefined;
  try {
    const { repository, tag, digest } = parseImageName(image);
    return digest ? `${repository}@${digest}` : `${repository}:${tag}`;
  } catch {
    return undefined;
  }
}
