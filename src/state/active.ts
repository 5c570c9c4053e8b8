import type { Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { isTerminal } from "../pod/phase.ts";
import { isAlive } from "../pod/sandbox.ts";
import type { WorkerView } from "./pod-table.ts";

/** True while a pod holds node resources: it has running containers, or is going to run. A pod that ended before graftlet started
 *  holds none, even if its worker has not cleaned up yet.
 *  @param view undefined before the pod has a worker. @param observed undefined if the runtime does not have the pod. */
export function isActive(
  { status }: Pod,
  view: Pick<WorkerView, "phase"> | undefined,
  observed: RuntimePod | undefined,
): boolean {
  if (view?.phase === "terminated" || view?.phase === "finished") return false;
  return !isTerminal(status?.phase) || (observed !== undefined && isAlive(observed));
}
