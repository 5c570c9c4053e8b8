import { createSignal } from "../lib/signal.ts";
import type { createNotes } from "./notes.ts";
import { createReportedNode, type NodeReporter, type ReportedNode } from "./reported-node.ts";

/** Keeps the list of a process's reporting nodes, which may be added and removed. @param onEvent called with each event; absent if
 *  events are not needed. */
export function createReportedNodes(onEvent?: ReturnType<typeof createNotes>["event"]) {
  const nodes: ReportedNode[] = [];
  const changed = createSignal();
  return {
    /** The current nodes. */
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
