import type { FleetListener } from "../config/fleet-configuration.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createFailureLog } from "../lib/retry.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { EnrolmentHandler } from "../seams/enrolment.ts";
import type { MachineListeners } from "../seams/machine-listeners.ts";

export interface EnrolmentServiceDeps extends ClockAndLog {
  readonly listener: FleetListener;
  listeners(deps: ClockAndLog): Promise<MachineListeners>;
  handler(listeners: MachineListeners): EnrolmentHandler;
}

/** Delay before the listener is opened again, milliseconds. */
const retryMs = 10_000;

/** Accepts machines that enrol at the release's listener for reverse tunnels. */
export function createEnrolmentService({ listener, handler, clock, log, ...deps }: EnrolmentServiceDeps): Runnable {
  const failures = createFailureLog(log, "cannot listen for machines that enrol; retrying");
  return {
    name: "enrolment",
    async run(signal) {
      const listeners = await deps.listeners({ clock, log });
      while (!signal.aborted) {
        try {
          await using _open = await listeners.open(listener, handler(listeners));
          failures.succeeded();
          await onAbort(signal);
        } catch (error) {
          failures.failed(error);
          await clock.sleep(retryMs, signal).catch(() => undefined);
        }
      }
    },
  };
}
