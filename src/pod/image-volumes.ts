import type { Container, Pod, Volume } from "../objects.ts";

/** A volume with an `image` source. */
export type ImageVolume = Volume & Required<Pick<Volume, "image">>;

/** The image volumes that a container mounts, each once, in the order of its mounts. Pure. */
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
