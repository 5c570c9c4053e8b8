import type { ContainerInfo } from "dockerode";
import { CodedError, ignoreNotFound } from "../../../src/lib/errors.ts";
import { inspectImage, lookupName, taggedNames } from "./inspect.ts";
import type { DockerParts } from "../parts.ts";
import { isImageId } from "./reference.ts";

type RemoveImageDeps = Pick<DockerParts, "docker">;

/** Removes an image: by its ID with all of its names, as in CRI; by a name only that name, and the image with the last one. A missing image
 *  counts as removed. Never forces: an image used by any container keeps all its names.
 *  @throws CodedError conflict, with that container's name. */
export async function removeImage(parts: RemoveImageDeps, image: string, signal: AbortSignal): Promise<void> {
  const found = await inspectImage(parts, image, signal);
  if (!found) return;
  await rejectInUse(parts, found.Id, signal);
  // Removing a repository's last tag removes its digests, and the last name the image.
  const names = isImageId(image)
    ? [...taggedNames(found.RepoTags), ...taggedNames(found.RepoDigests), found.Id]
    : [lookupName(image)];
  for (const name of names)
    await ignoreNotFound(parts.docker.request({ method: "DELETE", path: `/images/${name}` }, signal));
}

async function rejectInUse({ docker }: RemoveImageDeps, id: string, signal: AbortSignal): Promise<void> {
  const users = await docker.request<ContainerInfo[]>(
    {
      path: "/containers/json",
      query: { all: true, filters: JSON.stringify({ ancestor: [id] }) },
    },
    signal,
  );
  const user = users.find(({ ImageID }) => ImageID === id);
  if (user) throw new CodedError("conflict", `image ${id} is used by container ${user.Names[0]?.slice(1) ?? user.Id}`);
}
