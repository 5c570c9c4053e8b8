import { createSignal } from "../lib/signal.ts";
import { createReportedNode, type EventObject, type NodeReporter, type ReportedNode } from "./reported-node.ts";

/** Receives the events of all nodes. */
type EventReceiver = (node: string, about: EventObject, ...event: EventDetails) => void;
type EventDetails = Parameters<NonNullable<NodeReporter["event"]>> extends [unknown, ...infer Rest] ? Rest : never;

/** The nodes of a process that report, which may come and go.
 *  @param onEvent absent without readers. */
export function createReportedNodes(onEvent?: EventReceiver) {
  const nodes: ReportedNode[] = [];
  const changed = createSignal();
  return {
    /** Those that there are now. */
    nodes: nodes as readonly ReportedNode[],
    onNodesChange: changed.subscribe,
    /** Adds a node. @returns its reporter; disposed when the node is gone. */
    add(name: string, provider: string): ReportedNode & NodeReporter & Disposable {
      const report = createReportedNode({ name, provider }, onEvent?.bind(undefined, name));
      nodes.push(report);
      changed.send();
      return {
        ...report,
        [Symbol.dispose]() {
          nodes.splice(nodes.indexOf(report), 1);
          changed.send();
        },
      };
    },
  };
}
