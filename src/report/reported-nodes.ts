import { createSignal } from "../lib/signal.ts";
import type { createNotes } from "./notes.ts";
import { createReportedNode, type NodeReporter, type ReportedNode } from "./reported-node.ts";

/** The nodes of a process that report, which may come and go.
 *  @param onEvent absent without readers. */
export function createReportedNodes(onEvent?: ReturnType<typeof createNotes>["event"]) {
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
