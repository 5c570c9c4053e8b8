import type { Pod, PodStatus } from "../objects.ts";
import { isTerminal } from "./phase.ts";
import { qosClass } from "./qos.ts";

/** Reason in the status of a pod that is a placeholder: `kubectl get pods` shows it. */
export const placeholderReason = "NotRunByGraftlet";

/** What its status, its event, and answers to those who ask for its logs say. */
export const placeholderMessage =
  "nothing of this pod runs: its node leaves its DaemonSet out (nodes[].daemonSets), and shows it as ready so that rollouts end";

/** True for the status of a placeholder. */
export function isPlaceholder(status: PodStatus | undefined): boolean {
  return status?.reason === placeholderReason && status.podIP === undefined;
}

/** The status of a placeholder: Running and Ready, without containers and addresses of its own, so that no Service sends it anything.
 *  A final phase is kept. @param hostIPs the target's addresses, primary first. */
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
