import { ignoreNotFound } from "../../../src/lib/errors.ts";
import type { ImageInfo, ImageInspectInfo } from "dockerode";
import { Image, Int64Value } from "../../../src/gen/cri.ts";
import { qualifiedImageName, isImageId } from "./reference.ts";
import type { DockerParts } from "../parts.ts";
import { pullQuery } from "./pull-query.ts";

type ImageInspection = Pick<ImageInspectInfo, "Id" | "RepoTags" | "RepoDigests" | "Size" | "Config">;

/** Inspects an image.
 *  @param name with tag or digest (`latest` without either), or an ID.
 *  @returns undefined if the daemon does not have it.
 *  @throws CodedError invalid_argument for an invalid name. */
export async function inspectImage(
  { docker }: Pick<DockerParts, "docker">,
  name: string,
  signal: AbortSignal,
): Promise<ImageInspection | undefined> {
  const path = `/images/${lookupName(name)}/json`;
  return ignoreNotFound(docker.request<ImageInspection>({ path }, signal));
}

/** Formats an image name for an Engine API path. */
export function lookupName(name: string): string {
  if (isImageId(name)) return name;
  const { fromImage, tag } = pullQuery(name);
  return `${fromImage}${tag.includes(":") ? "@" : ":"}${tag}`;
}

/** Converts an image to CRI. @param pinned full names of pinned images. */
export function criImage(image: ImageInfo | ImageInspection, pinned: ReadonlySet<string>): Image {
  // With the containerd image store, digests of images that were pulled by digest are among the tags.
  const repoTags = taggedNames(image.RepoTags).filter((name) => !name.includes("@"));
  return Image.fromPartial({
    id: image.Id,
    repoTags,
    repoDigests: taggedNames(image.RepoDigests),
    size: BigInt(image.Size),
    pinned: repoTags.some((tag) => pinned.has(tag)),
    ...("Config" in image && imageUser(image.Config?.User ?? "")),
  });
}

/** Returns the names of an image, without the `<none>` of untagged images. */
export function taggedNames(names: readonly string[] | null | undefined): string[] {
  return (names ?? []).filter((name) => !name.includes("<none>")).map(qualifiedImageName);
}

/** The image's user: a UID, or a name that the runtime looks up. CRI's image has no group. */
function imageUser(user: string): Pick<Image, "uid" | "username"> {
  const [name = ""] = user.split(":");
  return /^\d+$/.test(name)
    ? { uid: Int64Value.fromPartial({ value: BigInt(name) }), username: "" }
    : { uid: undefined, username: name };
}
