import { ignoreNotFound } from "../../src/lib/errors.ts";
import type { NetworkInspectInfo } from "dockerode";
import { nodeLabel } from "../../src/pod/labels.ts";
import type { OwnedResource } from "../../src/seams/runtime.ts";
import { inspectImage } from "./image/inspect.ts";
import type { DockerParts } from "./parts.ts";
import { loopbackRules } from "./network/loopback-ports.ts";
import { localPauseImage } from "./config.ts";
import { findContainers } from "./container/own.ts";
import { forceRemove } from "./container/remove.ts";
import { removeImage } from "./image/images.ts";
import { probeContainers } from "./engine/capability-probes.ts";

type OwnedResourcesDeps = Pick<DockerParts, "docker" | "nodeName" | "host">;

/** Resources of this node other than pods: probe containers left by an interrupted start, networks with the node's label, the
 *  sandbox image built by graftlet unless a container of someone else uses it, and the machine's iptables rules of host ports. */
export async function dockerOwnedResources(
  parts: OwnedResourcesDeps,
  signal: AbortSignal,
): Promise<readonly OwnedResource[]> {
  const [trials, networks, image, rules] = await Promise.all([
    probeContainers(parts, signal),
    ownNetworks(parts, signal),
    pauseImage(parts, signal),
    loopbackRules(parts, signal),
  ]);
  return [
    ...trials.map((id) => ({
      name: `probe container (${id.slice(0, 13)})`,
      remove: (stop: AbortSignal) => forceRemove(parts, id, stop),
    })),
    ...networks,
    ...image,
    ...rules,
  ];
}

async function ownNetworks(parts: OwnedResourcesDeps, signal: AbortSignal): Promise<OwnedResource[]> {
  const filters = JSON.stringify({ label: [`${nodeLabel}=${parts.nodeName}`] });
  const found = await parts.docker.request<NetworkInspectInfo[]>({ path: "/networks", query: { filters } }, signal);
  return found.map(({ Id, Name }) => ({
    name: `Docker network ${Name}`,
    remove: (stop) => removeNetwork(parts, Id, stop),
  }));
}

/** Removes a network. @throws CodedError with the daemon's message while a container of someone else is attached. */
async function removeNetwork({ docker }: OwnedResourcesDeps, id: string, signal: AbortSignal): Promise<void> {
  await ignoreNotFound(docker.request({ method: "DELETE", path: `/networks/${id}` }, signal));
}

async function pauseImage(parts: OwnedResourcesDeps, signal: AbortSignal): Promise<OwnedResource[]> {
  const found = await inspectImage(parts, localPauseImage, signal);
  if (!found) return [];
  const users = await findContainers(parts.docker, { ancestor: [found.Id] }, signal);
  if (users.some(({ Labels }) => Labels[nodeLabel] !== parts.nodeName)) return [];
  return [{ name: `Docker image ${localPauseImage}`, remove: (stop) => removeImage(parts, localPauseImage, stop) }];
}
