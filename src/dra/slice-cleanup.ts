import type { ApiClient } from "../api/client.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { onAbort } from "../lib/runnables.ts";

export interface SliceCleanupDeps extends ClockAndLog {
  readonly client: Pick<ApiClient, "delete">;
  readonly nodeName: string;
}

/** Time for a driver to come back before its slices are deleted, milliseconds: the kubelet's. */
const gracePeriodMs = 30_000;
const initialRetryDelayMs = 1_000;
const maxRetryDelayMs = 300_000;
const resourceSlices = "/apis/resource.k8s.io/v1/resourceslices";

/** Deletes ResourceSlices of unusable drivers, so that no pods are scheduled for their devices. At startup, when no driver has registered
 *  yet, it deletes the slices of all drivers of the node.
 *  (kubelet, cm/dra/plugin/dra_plugin_manager.go) */
export function createSliceCleanup({ client, nodeName, clock, log }: SliceCleanupDeps) {
  const pending = new Map<string, AbortController>();
  const stop = new AbortController();
  const remove = async (driver: string | undefined, signal: AbortSignal) => {
    const fieldSelector = [`spec.nodeName=${nodeName}`, ...(driver ? [`spec.driver=${driver}`] : [])].join(",");
    for (let delayMs = initialRetryDelayMs; !signal.aborted; delayMs = Math.min(2 * delayMs, maxRetryDelayMs)) {
      try {
        await client.delete(resourceSlices, undefined, { signal, query: { fieldSelector } });
        return;
      } catch (err) {
        // An API server without this version of the API has no slices.
        if (signal.aborted || hasCode(err, "not_found")) return;
        // An identity without this right: retrying would not help.
        if (hasCode(err, "permission_denied")) return log.debug({ err, driver }, "cannot delete ResourceSlices");
        log.debug({ err, driver }, "cannot delete ResourceSlices; retrying");
      }
      await clock.sleep(clock.jitter(1, 1.2) * delayMs, signal).catch(() => undefined);
    }
  };
  const removeLater = async (driver: string, signal: AbortSignal) => {
    await clock.sleep(gracePeriodMs, signal).catch(() => undefined);
    await remove(driver, signal);
  };
  return {
    name: "resource slices",
    async run(signal: AbortSignal): Promise<void> {
      await remove(undefined, signal);
      await onAbort(signal);
      stop.abort();
    },
    /** Deletes a driver's slices after a grace period without a usable plugin. */
    setUsable(driver: string, isUsable: boolean): void {
      if (isUsable) {
        pending.get(driver)?.abort();
        pending.delete(driver);
      } else if (!pending.has(driver)) {
        const removal = new AbortController();
        pending.set(driver, removal);
        void removeLater(driver, AbortSignal.any([stop.signal, removal.signal])).finally(() => {
          if (pending.get(driver) === removal) pending.delete(driver);
        });
      }
    },
  };
}
