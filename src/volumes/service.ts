import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { WaitForTarget } from "../pipeline.ts";
import type { Volumes } from "./volumes.ts";

export interface VolumesServiceDeps {
  readonly volumes: Pick<Volumes, "recover" | "stop">;
  readonly waitForTarget: WaitForTarget | undefined;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Retry delay for reading the target's volumes, milliseconds. */
const retryDelayMs = 5_000;

/** Reconstructs volumes that an earlier process left on the node; stops the volume manager at the end. */
export function createVolumesService({ volumes, waitForTarget, clock, log }: VolumesServiceDeps): Service {
  const recover = async (signal: AbortSignal) => {
    for (let logged = false; !signal.aborted; logged = true) {
      try {
        await waitForTarget?.(signal);
        return await volumes.recover(signal);
      } catch (err) {
        if (signal.aborted) return;
        if (!logged) log.warn({ err }, "cannot reconstruct the node's volumes; retrying");
        await clock.sleep(retryDelayMs, signal).catch(() => undefined);
      }
    }
  };
  return {
    name: "volumes",
    run: (signal) => Promise.all([recover(signal), onAbort(signal).then(volumes.stop)]).then(() => undefined),
  };
}
