import type { Pod, PodStatus, Resources } from "../../objects.ts";
import { minCpuLimitMilli, minCpuRequestMilli } from "./container-resources.ts";
import { quantityMilli } from "../../pod/quantity.ts";
import { isPodLimited, podLimits, podRequests, type ResourceList } from "../../pod/resources.ts";

/** Pod-level resources of a status: allocated, and actual. A pod without pod-level resources has the sums of its containers.
 *  @param inForce actual CPU and memory while the pod runs, as far as they may differ from the allocation; undefined for a pod that does
 *  not run.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-pod-resources/ */
export function podLevelResources(
  pod: Pod,
  inForce: Resources | undefined,
): Pick<PodStatus, "resources" | "allocatedResources"> {
  const [requests, limits] = [podRequests(pod, { overhead: true }), podLimits(pod, { overhead: true })];
  const shown = inForce ? shownWhileRunning(pod, inForce, { requests, limits }) : { requests, limits };
  return {
    resources: {
      ...(isNonEmpty(shown.requests) && { requests: shown.requests }),
      ...(isNonEmpty(shown.limits) && { limits: shown.limits }),
    },
    ...(isNonEmpty(requests) && { allocatedResources: requests }),
  };
}

type PodLevelAmounts = Readonly<Record<"requests" | "limits", ResourceList>>;

/** The pod-level amounts of the spec, completed by those of its cgroup. */
function shownWhileRunning(pod: Pod, inForce: Resources, total: PodLevelAmounts): PodLevelAmounts {
  const own = pod.spec.resources;
  const isReported = (amount: string | undefined, least: number) =>
    amount !== undefined && quantityMilli(amount) > least;
  const { cpu, memory } = total.requests;
  const requests = {
    ...(isReported(cpu, minCpuRequestMilli) && { cpu }),
    ...(memory !== undefined && { memory }),
    ...own?.requests,
    ...inForce.requests,
  };
  const limits = {
    ...(isPodLimited(pod, "cpu") && isReported(total.limits["cpu"], minCpuLimitMilli) && { cpu: total.limits["cpu"] }),
    ...(isPodLimited(pod, "memory") && { memory: total.limits["memory"] }),
    ...own?.limits,
    ...inForce.limits,
  };
  return { requests: present(requests), limits: present(limits) };
}

function present(amounts: Readonly<Record<string, string | undefined>>): ResourceList {
  return Object.fromEntries(Object.entries(amounts).flatMap(([name, amount]) => (amount ? [[name, amount]] : [])));
}

function isNonEmpty(amounts: ResourceList): boolean {
  return Object.keys(amounts).length > 0;
}
