import type { ReportLimitation } from "../api/limitations.ts";
import { nodeReference } from "../pod/reference.ts";
import type { Cluster } from "./deps.ts";

/** Creates a reporter of pod network limitations: events on the Node. */
export function limitationReporter(events: Cluster["events"], nodeName: string): ReportLimitation {
  return (reason, message) => events.event(nodeReference(nodeName), "Warning", reason, message);
}
