import type { ApiClient } from "../api/client.ts";
import { createEventCorrelator } from "../api/event-correlator.ts";
import { writeEvent } from "../api/events.ts";
import { codeOf, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { nodeReference } from "../pod/reference.ts";

export interface SetupFailure {
  readonly client: Pick<ApiClient, "create" | "patch">;
  /** True if there is no API server. */
  readonly standalone: boolean;
  readonly error: unknown;
}

/** Events of a node that cannot run. */
export type SetupFailures = ReturnType<typeof createSetupFailures>;

/** Longest wait for the API server, milliseconds: the process is about to exit. */
const timeoutMs = 5_000;

export function createSetupFailures({ nodeName, clock, log }: ClockAndLog & { readonly nodeName: string }) {
  const correlator = createEventCorrelator(clock);
  const about = nodeReference(nodeName);
  return {
    /** Writes the kubelet's event `KubeletSetupFailed` about the Node. A repeated message counts up one event. An API server that does not
     *  respond delays the caller by a few seconds at most. */
    async record({ client, standalone, error: cause }: SetupFailure, signal: AbortSignal) {
      if (standalone || signal.aborted) return;
      const message = messageOf(cause);
      const event = correlator.observe({ about, type: "Warning", reason: "KubeletSetupFailed", message });
      if (!event) return;
      const reporter = { component: "kubelet", host: nodeName };
      try {
        await writeEvent(client, reporter, event, clock.within(timeoutMs, signal));
      } catch (error) {
        log.debug({ err: error, code: codeOf(error), reason: event.reason }, "cannot record event");
      }
    },
  };
}
