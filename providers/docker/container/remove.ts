import { CodedError, hasCode, ignoreNotFound } from "../../../src/lib/errors.ts";
import { unlinkLog } from "./log-link.ts";
import { containerType } from "./names.ts";
import { inspectOwn } from "./own.ts";
import type { DockerParts } from "../parts.ts";

/** Removes a container of this node, running or not, with its anonymous volumes and the link to its log. It is gone on return,
 *  even if another client had started to remove it.
 *  @throws CodedError not_found, also for a container that is not this node's. */
export async function removeContainer(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const found = await inspectOwn(parts, id, containerType, signal);
  await forceRemove(parts, found.Id, signal);
  await parts.facts.createdContainers.get(id)?.linked;
  await unlinkLog(parts, found, signal);
  parts.facts.createdContainers.delete(id);
  parts.facts.containers.delete(id);
}

/** Kills and removes a container; one that is already gone is no error. */
export async function forceRemove(parts: Pick<DockerParts, "docker">, id: string, signal: AbortSignal): Promise<void> {
  const request = { method: "DELETE", path: `/containers/${id}`, query: { force: true, v: true } } as const;
  await ignoreNotFound(parts.docker.request(request, signal)).catch(async (error: unknown) => {
    if (!hasCode(error, "conflict")) throw error;
    await untilRemoved(parts, id, signal);
  });
}

/** Waits for a removal in progress.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerWait */
async function untilRemoved({ docker }: Pick<DockerParts, "docker">, id: string, signal: AbortSignal): Promise<void> {
  const request = { method: "POST", path: `/containers/${id}/wait`, query: { condition: "removed" } } as const;
  const waiting = docker.request<{ readonly Error?: { readonly Message: string } | null }>(request, signal);
  const failure = (await ignoreNotFound(waiting))?.Error;
  if (failure) throw new CodedError("unknown", failure.Message);
}
