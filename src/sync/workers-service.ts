import type { Clock } from "../lib/clock.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { PodWorkers } from "./pod-workers.ts";

/** Time for running calls to the runtime to finish when the node stops, milliseconds. */
const drainTimeoutMs = 20_000;

/** When the node stops: aborts the workers' passes and waits for calls to the runtime that must not be interrupted.
 *  @param passes aborts the passes. */
export function createWorkersService(
  workers: Pick<PodWorkers, "idle">,
  passes: AbortController,
  clock: Pick<Clock, "sleep">,
): Service {
  return {
    name: "pod-workers",
    async run(signal) {
      await onAbort(signal);
      passes.abort();
      const patience = new AbortController();
      await Promise.race([workers.idle(), clock.sleep(drainTimeoutMs, patience.signal).catch(() => undefined)]);
      patience.abort();
    },
  };
}
