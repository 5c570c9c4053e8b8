import type { Container, ContainerStatus, Image } from "../gen/cri.ts";

/** An image that nothing uses and that is not pinned. Times are those of Clock.monotonic(). */
export interface UnusedImage {
  readonly image: Image;
  /** Bytes. */
  readonly size: number;
  readonly firstDetected: number;
  /** Time at which it was last seen in use; negative infinity when it never was. */
  readonly lastUsed: number;
}

interface Age {
  readonly firstDetected: number;
  lastUsed: number;
}

/** When images were first seen, and last seen in use, by ID. What an agent saw before its start is not known. */
export interface ImageAges {
  /** Takes in a list of all images. @param used what `imagesInUse` says of them. @param at when the look began.
   *  @returns those that nothing uses, in the order in which they go: by their last use, then by when they were first detected. */
  see(
    images: readonly Image[],
    used: ReadonlySet<string>,
    at: { readonly began: number; readonly now: number },
  ): readonly UnusedImage[];
  /** The image turned out to be in use. */
  usedNow(id: string, now: number): void;
  forget(id: string): void;
}

/** No image has been seen yet. */
export function createImageAges(): ImageAges {
  const ages = new Map<string, Age>();
  return {
    see(images, used, { began, now }) {
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
    usedNow(id, now) {
      const age = ages.get(id);
      if (age) age.lastUsed = now;
    },
    forget: (id) => void ages.delete(id),
  };
}

function byUse(a: UnusedImage, b: UnusedImage): number {
  return a.lastUsed === b.lastUsed ? a.firstDetected - b.firstDetected : a.lastUsed < b.lastUsed ? -1 : 1;
}

/** IDs of images that containers use, ended ones too, or mount as volumes. Pure.
 *  @param statuses of those containers, as far as they exist. */
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
