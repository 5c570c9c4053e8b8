import type { ContainerInspectInfo } from "dockerode";
import { sandboxType } from "../container/names.ts";
import { inspectOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";

/** How long after a start the look is asked for, milliseconds: the daemon begins with the start first, and answers the look when
 *  it is done with it. */
const lookAfterMs = 20;
/** For so long a look is the present, milliseconds. */
const presentMs = 50;

/** Starts a sandbox, and asks meanwhile how it is, which its caller will want to know at once: where the daemon is far away that
 *  saves a round trip. A look that shows what was before the start is thrown away. @throws CodedError the daemon's words. */
export async function startAndLook(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const { docker, clock, memory } = parts;
  const over = new AbortController();
  const look = clock
    .sleep(lookAfterMs, over.signal)
    .then(() => inspectOwn(parts, id, sandboxType, signal))
    .catch(() => undefined);
  try {
    await docker.ask({ method: "POST", path: `/containers/${id}/start` }, signal);
  } finally {
    over.abort();
  }
  const found = await look;
  if (found?.State.Running) memory.firstLooks.set(id, { found, seenAt: clock.monotonic() });
}

/** How a sandbox was as it started, where that was this moment; told once. */
export function takeFirstLook({ memory, clock }: DockerParts, id: string): ContainerInspectInfo | undefined {
  const look = memory.firstLooks.get(id);
  memory.firstLooks.delete(id);
  return look && clock.monotonic() - look.seenAt <= presentMs ? look.found : undefined;
}
