import type { Image } from "../../src/gen/cri.ts";
import { parseImageName } from "../../src/pod/image-name.ts";
import type { GrpcChannel } from "./client.ts";
import { readReportedConfig } from "./reported-config.ts";

/** Marks the runtime's sandbox image as pinned if the runtime does not do so itself; without that image no pod starts. containerd 1.6
 *  reports the name only in its status's configuration. The name is read once; runtimes that pin images themselves are not asked. */
export function createSandboxImagePinner(
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
