import type { Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { isTerminal } from "../pod/phase.ts";
import { isAlive } from "../pod/sandbox.ts";
import type { WorkerView } from "./pod-table.ts";

/** True while a pod holds resources of the node: something of it runs, or is to run. One that had ended before the agent's start holds
 *  none, though its worker has yet to clear up after it.
 *  @param view undefined before the pod has a worker. @param seen undefined for a pod that the runtime does not have. */
export function isActive(
  { status }: Pod,
  view: Pick<WorkerView, "phase"> | undefined,
  seen: RuntimePod | undefined,
): boolean {
  if (view?.phase === "terminated" || view?.phase === "finished") return false;
  return !isTerminal(status?.phase) || (seen !== undefined && isAlive(seen));
}
