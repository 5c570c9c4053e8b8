import type { Container, Pod, Volume } from "../objects.ts";

/** A volume that shows an image's files. */
export type ImageVolume = Volume & Required<Pick<Volume, "image">>;

/** The images that a container mounts as volumes, each once, in the order of its mounts. Pure. */
export function imageVolumes({ spec }: Pod, { volumeMounts = [] }: Container): readonly ImageVolume[] {
  const names = new Set(volumeMounts.map(({ name }) => name));
  return [...names].flatMap((name) => {
    const volume = spec.volumes?.find((one) => one.name === name);
    return volume && isImage(volume) ? [volume] : [];
  });
}

function isImage(volume: Volume): volume is ImageVolume {
  return volume.image !== undefined;
}
