import type { ContainerInfo } from "dockerode";
import { CodedError } from "../../../src/lib/errors.ts";
import { ifFound } from "../client/errors.ts";
import { inspectImage, named } from "./inspect.ts";
import type { DockerParts } from "../parts.ts";

type Parts = Pick<DockerParts, "docker">;

/** Removes an image under all of its names, as CRI means it; one that is gone is removed. Never by force: what a container of
 *  anybody's was made of stays, all its names included. @throws CodedError conflict, naming such a container. */
export async function removeImage(parts: Parts, image: string, signal: AbortSignal): Promise<void> {
  const found = await inspectImage(parts, image, signal);
  if (!found) return;
  await refuseInUse(parts, found.Id, signal);
  // A repository's digests go with its last tag; an image goes with its last name.
  for (const name of [...named(found.RepoTags), ...named(found.RepoDigests), found.Id])
    await ifFound(parts.docker.ask({ method: "DELETE", path: `/images/${name}` }, signal));
}

async function refuseInUse({ docker }: Parts, id: string, signal: AbortSignal): Promise<void> {
  const users = await docker.ask<ContainerInfo[]>(
    {
      path: "/containers/json",
      query: { all: true, filters: JSON.stringify({ ancestor: [id] }) },
    },
    signal,
  );
  const user = users.find(({ ImageID }) => ImageID === id);
  if (user) throw new CodedError("conflict", `image ${id} is used by container ${user.Names[0]?.slice(1) ?? user.Id}`);
}
