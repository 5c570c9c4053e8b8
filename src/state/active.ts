import type { Pod } from "../objects.ts";
import { isTerminal } from "../pod/phase.ts";
import type { WorkerView } from "./pod-table.ts";

/** True while a pod holds resources of the node: its containers run, are to run, or are being stopped. One that had ended before the
 *  agent's start holds none, though its worker has not looked yet. @param view undefined before the pod has a worker. */
export function isActive({ status }: Pod, view: Pick<WorkerView, "phase"> | undefined): boolean {
  if (view?.phase === "terminating") return true;
  return (view === undefined || view.phase === "syncing") && !isTerminal(status?.phase);
}
