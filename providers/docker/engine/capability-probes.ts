import type { HostConfig } from "dockerode";
import { hasCode, messageOf } from "../../../src/lib/errors.ts";
import type { DockerParts } from "../parts.ts";
import { findContainers } from "../container/own.ts";
import { forceRemove } from "../container/remove.ts";

export type CapabilityProbeOutcome = "works" | { readonly fails: string };

/** Capabilities that the daemon's info does not include. */
export interface CapabilityProbes {
  readonly privileged: CapabilityProbeOutcome;
  readonly lowOomScore: CapabilityProbeOutcome;
}

/** Label of probe containers, with the node's name. They are not pods of the node: its lists and events omit them. */
const probeLabel = "graftlet.dev/trial";
const removeTimeoutMs = 30_000;

/** Starts one container of each kind briefly. A kind fails only if a plain container starts.
 *  @param image an image whose program runs until it is stopped.
 *  @returns undefined if not even a plain container starts.
 *  @throws CodedError if the daemon does not respond. */
export async function runCapabilityProbes(
  parts: DockerParts,
  image: string,
  signal: AbortSignal,
): Promise<CapabilityProbes | undefined> {
  for (const id of await probeContainers(parts, signal)) await forceRemove(parts, id, signal);
  const attempt = (hostConfig: HostConfig) => start(parts, image, hostConfig, signal);
  const [privileged, lowOomScore] = await Promise.all([attempt({ Privileged: true }), attempt({ OomScoreAdj: -998 })]);
  const failed = [privileged, lowOomScore].some((outcome) => outcome !== "works");
  if (failed && (await attempt({})) !== "works") return undefined;
  return { privileged, lowOomScore };
}

/** IDs of this node's probe containers, left by a graftlet that was killed during its probes. */
export async function probeContainers(
  { docker, nodeName }: Pick<DockerParts, "docker" | "nodeName">,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const left = await findContainers(docker, { label: [`${probeLabel}=${nodeName}`] }, signal);
  return left.map(({ Id }) => Id);
}

/** The probe runs as root: if the image's user is unprivileged, its result would not apply to root. */
async function start(
  parts: DockerParts,
  image: string,
  hostConfig: HostConfig,
  signal: AbortSignal,
): Promise<CapabilityProbeOutcome> {
  const { docker, nodeName, clock } = parts;
  const body = {
    Image: image,
    User: "0",
    Labels: { [probeLabel]: nodeName },
    HostConfig: { NetworkMode: "none", LogConfig: { Type: "none", Config: {} }, ...hostConfig },
  };
  const post = <T>(path: string, content: object) => docker.request<T>({ method: "POST", path, body: content }, signal);
  const { Id } = await post<{ readonly Id: string }>("/containers/create", body);
  try {
    await post(`/containers/${Id}/start`, {});
    return "works";
  } catch (error) {
    if (hasCode(error, "unavailable", "deadline_exceeded", "cancelled", "not_found")) throw error;
    return { fails: messageOf(error) };
  } finally {
    await forceRemove(parts, Id, clock.within(removeTimeoutMs));
  }
}
