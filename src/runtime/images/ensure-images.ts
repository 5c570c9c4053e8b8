import type { ContainerStart, EnsuredImages } from "../start-container.ts";
import type { ImagePuller } from "./puller.ts";

/** Ensures the images of a container's image volumes, and then its own. @throws StartError. */
export async function ensureImages(
  puller: Pick<ImagePuller, "ensure" | "ensureVolumes">,
  { pod, container, sandbox, presentImage }: Pick<ContainerStart, "pod" | "container" | "sandbox" | "presentImage">,
  signal: AbortSignal,
): Promise<EnsuredImages> {
  const volumes = await puller.ensureVolumes(pod, container, sandbox.config, signal);
  return { volumes, ...(await puller.ensure(pod, container, sandbox.config, signal, presentImage)) };
}
