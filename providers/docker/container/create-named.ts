import type { ContainerCreateOptions, ContainerInspectInfo } from "dockerode";
import { CodedError, hasCode, ignoreNotFound } from "../../../src/lib/errors.ts";
import { nodeLabel } from "../../../src/pod/labels.ts";
import type { DockerParts } from "../parts.ts";
import { findContainers } from "./own.ts";

type CreateNamedDeps = Pick<DockerParts, "docker" | "nodeName" | "clock" | "log">;

/** Creates a sandbox or container under its name, with a suffix `_<8 hexadecimal digits>` if a container that is not this node's
 *  has that name.
 *  @param body JSON of the create call; its labels assign the container to this node (labels.ts).
 *  @returns the container's ID.
 *  @throws CodedError already_exists when a container of this node has the name; otherwise the daemon's error (not_found: no such
 *  image).
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate */
export async function createNamed(
  parts: CreateNamedDeps,
  name: string,
  body: ContainerCreateOptions,
  signal: AbortSignal,
): Promise<string> {
  try {
    return await create(parts, name, body, signal);
  } catch (error) {
    if (!hasCode(error, "conflict")) throw error;
    const path = `/containers/${encodeURIComponent(name)}/json`;
    const holder = await ignoreNotFound(parts.docker.request<ContainerInspectInfo>({ path }, signal));
    // The container is gone, or the conflict had another cause.
    if (!holder) throw error;
    if (await isOwnName(parts, name, holder, signal))
      throw new CodedError("already_exists", `the name ${name} is taken by a container of this node`, { cause: error });
    const other = `${name}_${randomSuffix(parts)}`;
    parts.log.warn({ name, holder: holder.Id, instead: other }, "a foreign container has this name; using another");
    return create(parts, other, body, signal);
  }
}

async function create(
  { docker, log }: CreateNamedDeps,
  name: string,
  body: ContainerCreateOptions,
  signal: AbortSignal,
): Promise<string> {
  const { Id, Warnings } = await docker.request<{ readonly Id: string; readonly Warnings?: readonly string[] | null }>(
    {
      method: "POST",
      path: "/containers/create",
      query: { name },
      body,
    },
    signal,
  );
  if (Warnings && Warnings.length > 0)
    log.debug({ container: Id, name, warnings: Warnings }, "Docker returned warnings for a created container");
  return Id;
}

/** True if a container of this node has the name, with or without a suffix. */
async function isOwnName(
  { docker, nodeName }: CreateNamedDeps,
  name: string,
  holder: ContainerInspectInfo,
  signal: AbortSignal,
): Promise<boolean> {
  if (holder.Config.Labels?.[nodeLabel] === nodeName) return true;
  const ours = await findContainers(docker, { label: [`${nodeLabel}=${nodeName}`], name: [name] }, signal);
  return ours.some(({ Names }) => Names.some((taken) => withoutSuffix(taken) === `/${name}`));
}

function withoutSuffix(name: string): string {
  return name.replace(/_[0-9a-f]{8}$/, "");
}

function randomSuffix({ clock }: CreateNamedDeps): string {
  return Math.floor(clock.jitter(0, 2 ** 32))
    .toString(16)
    .padStart(8, "0");
}
