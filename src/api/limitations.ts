import type { EventSink } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";

/** Limitations of a running tunnel or endpoint publisher, as reasons of events. */
export type Limitation = "ConnectionsNotForwarded" | "UDPNotForwarded" | "PodNetworkOverlaps" | "ServicesNotForwarded";
export type ReportLimitation = (reason: Limitation, message: string) => void;

/** Reports each limitation when it first occurs and whenever its message changes. */
export function reportChanges(report: ReportLimitation): (reason: Limitation, message: string | undefined) => void {
  const reported = new Map<Limitation, string | undefined>();
  return (reason, message) => {
    if (message !== undefined && message !== reported.get(reason)) report(reason, message);
    reported.set(reason, message);
  };
}

/** Creates a reporter of pod network limitations: events on the Node. */
export function createLimitationReporter(events: EventSink, nodeName: string): ReportLimitation {
  return (reason, message) => events.event(nodeReference(nodeName), "Warning", reason, message);
}
