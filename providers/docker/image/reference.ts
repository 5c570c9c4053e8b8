import { parseImageName } from "../../../src/pod/image-name.ts";

/** What the Engine API's image answers have in common. */
export interface NamedImage {
  /** `sha256:…` */
  readonly Id: string;
  readonly RepoDigests?: readonly string[] | null;
}

/** The reference by which containers are created and which their status shows: the name of the image's manifest
 *  (`registry/repository@sha256:…`), of the repository asked for where it has one; its id where no registry gave it one.
 *  @param name the image as it was asked for, by any name or id. */
export function imageRefOf({ Id, RepoDigests }: NamedImage, name = ""): string {
  const known = (RepoDigests ?? []).filter((digest) => !digest.startsWith("<none>")).map(fullName);
  const repository = repositoryOf(name);
  return known.find((digest) => repositoryOf(digest) === repository) ?? known[0] ?? Id;
}

/** A name with its registry, as CRI runtimes write it: Docker leaves `docker.io/library/` out. */
export function fullName(name: string): string {
  const repository = repositoryOf(name);
  if (repository === undefined) return name;
  const { tag, digest } = parseImageName(name);
  return `${repository}${tag && `:${tag}`}${digest && `@${digest}`}`;
}

/** Undefined for an id, and for what is no image's name. */
function repositoryOf(name: string): string | undefined {
  if (name === "" || isImageId(name)) return undefined;
  try {
    return parseImageName(name).repository;
  } catch {
    return undefined;
  }
}

/** True for `sha256:<64 hexadecimal digits>`, with or without the algorithm. */
export function isImageId(name: string): boolean {
  return /^(sha256:)?[0-9a-f]{64}$/.test(name);
}
