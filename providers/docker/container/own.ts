import type { ContainerInfo, ContainerInspectInfo } from "dockerode";
import { CodedError } from "../../../src/lib/errors.ts";
import { nodeLabel } from "../../../src/pod/labels.ts";
import { typeLabel } from "./names.ts";
import type { DockerClient } from "../client/client.ts";
import type { DockerParts } from "../parts.ts";

/** Inspects a sandbox or container of this node.
 *  @param type `podsandbox` or `container`.
 *  @throws CodedError not_found, also for a container of another node or of the other type. */
export async function inspectOwn(
  { docker, nodeName }: Pick<DockerParts, "docker" | "nodeName">,
  id: string,
  type: string,
  signal: AbortSignal,
): Promise<ContainerInspectInfo> {
  const found = await docker.request<ContainerInspectInfo>({ path: `/containers/${id}/json` }, signal);
  const labels = found.Config.Labels ?? {};
  if (labels[nodeLabel] !== nodeName || labels[typeLabel] !== type)
    throw new CodedError("not_found", `node ${nodeName} has no ${type} ${id}`);
  return found;
}

/** Lists sandboxes or containers of this node, including exited ones. @param labels additional labels to match. */
export function listOwn(
  { docker, nodeName }: Pick<DockerParts, "docker" | "nodeName">,
  type: string,
  { labels = {}, id }: { readonly labels?: Readonly<Record<string, string>>; readonly id?: string },
  signal: AbortSignal,
): Promise<ContainerInfo[]> {
  const wanted = { ...labels, [typeLabel]: type, [nodeLabel]: nodeName };
  const label = Object.entries(wanted).map(([name, value]) => `${name}=${value}`);
  return findContainers(docker, { label, ...(id && { id: [id] }) }, signal);
}

/** Lists the daemon's containers that match all filters, including ended ones. */
export function findContainers(
  docker: Pick<DockerClient, "request">,
  filters: Readonly<Record<string, readonly string[]>>,
  signal: AbortSignal,
): Promise<ContainerInfo[]> {
  const query = { all: true, filters: JSON.stringify(filters) };
  return docker.request({ path: "/containers/json", query }, signal);
}
