import type { ContainerInspectInfo } from "dockerode";
import { sandboxType } from "../container/names.ts";
import { inspectOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";

/** Delay of the inspection after the start call, milliseconds: the daemon handles the start first, then answers the
 *  inspection. */
const inspectDelayMs = 20;
/** Age up to which an inspection counts as current, milliseconds. */
const maxAgeMs = 50;

/** Starts a sandbox and inspects it at the same time, for the status call that follows: this saves a round trip to a
 *  remote daemon. An inspection from before the start is discarded.
 *  @throws CodedError with the daemon's message. */
export async function startAndInspect(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const { docker, clock, facts } = parts;
  const over = new AbortController();
  const inspection = clock
    .sleep(inspectDelayMs, over.signal)
    .then(() => inspectOwn(parts, id, sandboxType, signal))
    .catch(() => undefined);
  try {
    await docker.request({ method: "POST", path: `/containers/${id}/start` }, signal);
  } finally {
    over.abort();
  }
  const found = await inspection;
  if (found?.State.Running) facts.startInspections.set(id, { found, inspectedAt: clock.monotonic() });
}

/** The inspection from the sandbox's start, if still current; returned once. */
export function takeStartInspection({ facts, clock }: DockerParts, id: string): ContainerInspectInfo | undefined {
  const inspection = facts.startInspections.get(id);
  facts.startInspections.delete(id);
  return inspection && clock.monotonic() - inspection.inspectedAt <= maxAgeMs ? inspection.found : undefined;
}
