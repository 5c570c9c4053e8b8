import type { Image } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";

/** What was asked while the sandbox was made. It may have failed: then nothing is known, and whoever needs it asks again. */
export interface Foresight {
  /** The container's image as the target has it; undefined: not known. */
  image(container: Container): Promise<Image | undefined>;
  /** True when the container has never logged anything in its pod's directory; false: not known. */
  isUnlogged(container: Container): Promise<boolean>;
}

export interface ForesightDeps {
  /** The image where the container is content with what is there. */
  readonly lookForImage: (pod: Pod, container: Container, signal: AbortSignal) => Promise<Image | undefined>;
  /** Names of the pod's containers that have a directory for logs. */
  readonly loggedContainers: (pod: Pod, signal: AbortSignal) => Promise<ReadonlySet<string>>;
}

/** Asks what starting these containers will need, all at once. Nothing is thrown: an error is told by whoever asks again. */
export function foresee(
  { lookForImage, loggedContainers }: ForesightDeps,
  pod: Pod,
  containers: readonly Container[],
  signal: AbortSignal,
): Foresight {
  const unknown = () => undefined;
  const images = new Map(
    containers.map((container) => [container.name, lookForImage(pod, container, signal).catch(unknown)]),
  );
  const logged = containers.length > 0 ? loggedContainers(pod, signal).catch(unknown) : undefined;
  return {
    image: async ({ name }) => images.get(name),
    isUnlogged: async ({ name }) => (await logged)?.has(name) === false,
  };
}
