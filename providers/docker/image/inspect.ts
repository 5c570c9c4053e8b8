import type { ImageInfo, ImageInspectInfo } from "dockerode";
import { Image, Int64Value } from "../../../src/gen/cri.ts";
import { ifFound } from "../client/errors.ts";
import { fullName, isImageId } from "./reference.ts";
import type { DockerParts } from "../parts.ts";
import { pullQuery } from "./pull-query.ts";

type Inspected = Pick<ImageInspectInfo, "Id" | "RepoTags" | "RepoDigests" | "Size" | "Config">;

/** @param name a name with tag or digest (`latest` without either), or an id. @returns undefined when the daemon has no such
 *  image. @throws CodedError invalid_argument for what is neither. */
export async function inspectImage(
  { docker }: Pick<DockerParts, "docker">,
  name: string,
  signal: AbortSignal,
): Promise<Inspected | undefined> {
  const path = `/images/${lookupName(name)}/json`;
  return ifFound(docker.ask<Inspected>({ path }, signal));
}

/** The name as a path of the Engine API has it. */
export function lookupName(name: string): string {
  if (isImageId(name)) return name;
  const { fromImage, tag } = pullQuery(name);
  return `${fromImage}${tag.includes(":") ? "@" : ":"}${tag}`;
}

/** CRI's image. @param pinned full names of images that must stay. */
export function criImage(image: ImageInfo | Inspected, pinned: ReadonlySet<string>): Image {
  const repoTags = named(image.RepoTags);
  return Image.fromPartial({
    id: image.Id,
    repoTags,
    repoDigests: named(image.RepoDigests),
    size: BigInt(image.Size),
    pinned: repoTags.some((tag) => pinned.has(tag)),
    ...("Config" in image && userOf(image.Config?.User ?? "")),
  });
}

/** Untagged images have `<none>` for names. */
export function named(names: readonly string[] | null | undefined): string[] {
  return (names ?? []).filter((name) => !name.includes("<none>")).map(fullName);
}

/** Whom the image says to run as: a number, or a name that the runtime looks up. The group plays no part in CRI's image. */
function userOf(user: string): Pick<Image, "uid" | "username"> {
  const [name = ""] = user.split(":");
  return /^\d+$/.test(name)
    ? { uid: Int64Value.fromPartial({ value: BigInt(name) }), username: "" }
    : { uid: undefined, username: name };
}
