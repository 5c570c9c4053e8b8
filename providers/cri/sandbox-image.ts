import { type Image, RuntimeServiceService as runtimeService } from "../../src/gen/cri.ts";
import { parseImageName } from "../../src/pod/image-name.ts";
import type { Channel } from "./client.ts";

/** Pins the runtime's sandbox image, without which no pod starts, where the runtime does not do that itself: containerd 1.6 tells its
 *  name only with the configuration in its status. It is asked once, and by runtimes that pin images not at all. */
export function createSandboxPin(
  runtime: Channel,
): (images: readonly Image[], signal: AbortSignal) => Promise<readonly Image[]> {
  let known: { readonly name: string | undefined } | undefined;
  return async (images, signal) => {
    if (images.length === 0 || images.some(({ pinned }) => pinned)) return images;
    known ??= { name: sandboxImageIn((await runtime.call(runtimeService.status, { verbose: true }, signal)).info) };
    const { name } = known;
    if (name === undefined) return images;
    const isIt = ({ repoTags, repoDigests }: Image) => repoTags.includes(name) || repoDigests.includes(name);
    return images.map((image) => (isIt(image) ? { ...image, pinned: true } : image));
  };
}

/** The full name in containerd's configuration; undefined where the runtime tells none. */
function sandboxImageIn(info: Readonly<Record<string, string>>): string | undefined {
  try {
    const config: unknown = JSON.parse(info["config"] ?? "");
    if (typeof config !== "object" || config === null || !("sandboxImage" in config)) return undefined;
    const { repository, tag, digest } = parseImageName(String(config.sandboxImage));
    return digest ? `${repository}@${digest}` : `${repository}:${tag}`;
  } catch {
    return undefined;
  }
}
