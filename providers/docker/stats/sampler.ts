import type { ContainerInfo } from "dockerode";
import { hasCode } from "../../../src/lib/errors.ts";
import { createSemaphore } from "../../../src/lib/semaphore.ts";
import { engineInfo } from "../client/engine-info.ts";
import type { DockerParts } from "../parts.ts";
import { type StatsSample, type Usage, parseUsage } from "./sample.ts";

/** Samples a container or sandbox; undefined when it is not running. */
export type Sampler = (container: Pick<ContainerInfo, "Id" | "State">) => Promise<Usage | undefined>;

/** Limit of concurrent samples. The daemon measures all requested containers once a second and each request waits for
 *  that, so many at once cost no more than few, and finish sooner. */
const maxConcurrentSamples = 64;

export async function createSampler(parts: Pick<DockerParts, "docker">, signal: AbortSignal): Promise<Sampler> {
  const { MemTotal } = await engineInfo(parts, signal);
  const limited = createSemaphore(maxConcurrentSamples);
  return async ({ Id, State }) => {
    if (State !== "running" && State !== "paused") return undefined;
    const sample = await limited(() => takeSample(parts, Id, signal));
    return sample && parseUsage(sample, MemTotal);
  };
}

async function takeSample(
  { docker }: Pick<DockerParts, "docker">,
  id: string,
  signal: AbortSignal,
): Promise<StatsSample | undefined> {
  // Without one-shot the daemon waits for a second sample.
  const query = { stream: false, "one-shot": true };
  try {
    return await docker.request<StatsSample>({ path: `/containers/${id}/stats`, query }, signal);
  } catch (error) {
    if (hasCode(error, "not_found", "conflict")) return undefined;
    throw error;
  }
}
