import type { Taint, Toleration } from "../objects.ts";
import { isStaticPod } from "../pod/containers.ts";
import { type PodAdmitHandler, predicateFailed } from "./admit-attributes.ts";

/** Rejects a pod that does not tolerate the node's NoExecute taints; NoSchedule is left to the scheduler. Static pods tolerate all.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ */
export const noExecuteTolerated: PodAdmitHandler = ({ pod, node }) => {
  const taints = (node.spec?.taints ?? []).filter(({ effect }) => effect === "NoExecute");
  const tolerations = pod.spec.tolerations ?? [];
  const untolerated = taints.some((taint) => !tolerations.some((toleration) => tolerates(toleration, taint)));
  if (!untolerated || isStaticPod(pod)) return undefined;
  return predicateFailed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
};

/** True if a toleration tolerates a taint. An empty effect or key matches all; the operators Lt and Gt are off by default and match
 *  nothing. */
export function tolerates({ key, operator, value, effect }: Toleration, taint: Taint): boolean {
  if (effect && effect !== taint.effect) return false;
  if (key && key !== taint.key) return false;
  if (operator === "Exists") return true;
  return (!operator || operator === "Equal") && (value ?? "") === (taint.value ?? "");
}
