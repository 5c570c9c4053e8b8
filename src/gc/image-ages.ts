import type { Container, ContainerStatus, Image } from "../gen/cri.ts";

/** An unused, unpinned image. Times are Clock.monotonic(). */
export interface UnusedImage {
  readonly image: Image;
  /** Bytes. */
  readonly size: number;
  readonly firstDetected: number;
  /** When the image was last seen in use; negative infinity if never. */
  readonly lastUsed: number;
}

/** First-detected and last-used times of images, by ID. History from before the agent's start is unknown. */
export type ImageAges = ReturnType<typeof createImageAges>;

export function createImageAges() {
  const ages = new Map<string, { readonly firstDetected: number; lastUsed: number }>();
  return {
    /** Records a list of all images. @param used result of `imagesInUse`. @param began when the listing began. @param now the current time.
     *  @returns unused images in removal order: by last use, then by first detection. */
    record(
      images: readonly Image[],
      used: ReadonlySet<string>,
      { began, now }: { readonly began: number; readonly now: number },
    ) {
      const present = new Set(images.map(({ id }) => id));
      for (const id of ages.keys()) if (!present.has(id)) ages.delete(id);
      for (const { id } of images) {
        const age = ages.get(id) ?? { firstDetected: began, lastUsed: Number.NEGATIVE_INFINITY };
        if (used.has(id)) age.lastUsed = now;
        ages.set(id, age);
      }
      return images
        .filter(({ id, pinned }) => !used.has(id) && !pinned)
        .flatMap((image) => {
          const age = ages.get(image.id);
          return age ? [{ image, size: Number(image.size), ...age }] : [];
        })
        .sort(byUse);
    },
    /** Records that the image is in use after all. */
    markUsed(id: string, now: number) {
      const age = ages.get(id);
      if (age) age.lastUsed = now;
    },
    forget: (id: string) => void ages.delete(id),
  };
}

function byUse(a: UnusedImage, b: UnusedImage): number {
  return a.lastUsed === b.lastUsed ? a.firstDetected - b.firstDetected : a.lastUsed < b.lastUsed ? -1 : 1;
}

/** IDs of images used by containers (also exited ones) or mounted as volumes. Pure.
 *  @param statuses statuses of the containers that still exist. */
export function imagesInUse(
  images: readonly Image[],
  containers: readonly Container[],
  statuses: readonly ContainerStatus[],
): ReadonlySet<string> {
  const named = new Set([
    ...containers.map(({ imageId, imageRef }) => imageId || imageRef),
    ...statuses.flatMap(({ mounts }) => mounts.flatMap(({ image }) => (image ? [image.image] : []))),
  ]);
  const isNamed = ({ id, repoTags, repoDigests }: Image) =>
    [id, ...repoTags, ...repoDigests].some((name) => named.has(name));
  return new Set(images.filter(isNamed).map(({ id }) => id));
}
