import { parseImageName } from "../../../src/pod/image-name.ts";

/** Fields that all responses of the Engine API about images have. */
export interface NamedImage {
  /** `sha256:…` */
  readonly Id: string;
  readonly RepoDigests?: readonly string[] | null;
}

/** Returns the reference with which containers are created, and which their status shows: the manifest's name
 *  (`registry/repository@sha256:…`), preferably in the requested repository, or the image's ID if it has no registry digest.
 *  @param name the requested name or ID. */
export function imageRefOf({ Id, RepoDigests }: NamedImage, name = ""): string {
  const known = (RepoDigests ?? []).filter((digest) => !digest.startsWith("<none>")).map(qualifiedImageName);
  const repository = repositoryOf(name);
  return known.find((digest) => repositoryOf(digest) === repository) ?? known[0] ?? Id;
}

/** Returns a name with its registry, as CRI runtimes report it; Docker omits `docker.io/library/`. */
export function qualifiedImageName(name: string): string {
  const repository = repositoryOf(name);
  if (repository === undefined) return name;
  const { tag, digest } = parseImageName(name);
  return `${repository}${tag && `:${tag}`}${digest && `@${digest}`}`;
}

/** Returns the repository of an image name; undefined for an ID, and for an invalid name. */
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
