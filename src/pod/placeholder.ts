import type { Pod, PodStatus } from "../objects.ts";
import { isTerminal } from "./phase.ts";
import { qosClass } from "./qos.ts";

/** Reason in a placeholder's status, as `kubectl get pods` shows it. */
export const placeholderReason = "NotRunByGraftlet" as const;

/** Message of the placeholder's status and event, also returned for log requests. */
export const placeholderMessage =
  "this pod does not run: its node skips its DaemonSet (nodes[].daemonSets) and reports the pod as ready so that rollouts complete";

/** True for the status of a placeholder. */
export function isPlaceholder(status: PodStatus | undefined): boolean {
  return status?.reason === placeholderReason && status.podIP === undefined;
}

/** The status of a placeholder: Running and Ready, but without containers and pod IPs, so that no Service routes to it. A final phase is
 *  kept. @param hostIPs the target's addresses, primary first. */
export function placeholderStatus(pod: Pod, hostIPs: readonly string[]): PodStatus {
  const [hostIP] = hostIPs;
  const why = { reason: placeholderReason, message: placeholderMessage };
  const phase = pod.status?.phase;
  const verdicts = [
    ["PodReadyToStartContainers", { status: "False", ...why }],
    ["Initialized", { status: "True" }],
    ["Ready", { status: "True", ...why }],
    ["ContainersReady", { status: "True", ...why }],
    ["PodScheduled", { status: "True" }],
  ] as const;
  const { generation } = pod.metadata;
  return {
    phase: isTerminal(phase) ? phase : "Running",
    ...why,
    conditions: verdicts.map(([type, verdict]) => ({
      type,
      ...(generation !== undefined && { observedGeneration: generation }),
      ...verdict,
    })),
    qosClass: pod.status?.qosClass ?? qosClass(pod.spec),
    ...(hostIP !== undefined && { hostIP, hostIPs: hostIPs.slice(0, 2).map((ip) => ({ ip })) }),
  };
}
