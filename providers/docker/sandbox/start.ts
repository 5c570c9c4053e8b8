import type { ContainerInspectInfo } from "dockerode";
import { sandboxType } from "../container/names.ts";
import { inspectOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";

/** Delay of the inspection after the start call, milliseconds: the daemon handles the start first, then answers the
 *  inspection. */
const inspectAfterMs = 20;
/** Age up to which an inspection counts as current, milliseconds. */
const presentMs = 50;

/** Starts a sandbox and inspects it at the same time, for the status call that follows: this saves a round trip to a
 *  remote daemon. An inspection from before the start is discarded.
 *  @throws CodedError with the daemon's message. */
export async function startAndInspect(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const { docker, clock, memory } = parts;
  const over = new AbortController();
  const inspection = clock
    .sleep(inspectAfterMs, over.signal)
    .then(() => inspectOwn(parts, id, sandboxType, signal))
    .catch(() => undefined);
  try {
    await docker.ask({ method: "POST", path: `/containers/${id}/start` }, signal);
  } finally {
    over.abort();
  }
  const found = await inspection;
  if (found?.State.Running) memory.startInspections.set(id, { found, seenAt: clock.monotonic() });
}

/** The inspection from the sandbox's start, if still current; returned once. */
export function takeStartInspection({ memory, clock }: DockerParts, id: string): ContainerInspectInfo | undefined {
  const inspection = memory.startInspections.get(id);
  memory.startInspections.delete(id);
  return inspection && clock.monotonic() - inspection.seenAt <= presentMs ? inspection.found : undefined;
}
