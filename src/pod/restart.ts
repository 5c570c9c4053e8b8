import type * as k8s from "@kubernetes/client-node";
import type { Container, PodSpec, Wire } from "../objects.ts";

/** The fields of a container that decide its restart. */
export type Restartable = Pick<Container, "name" | "restartPolicy" | "restartPolicyRules">;

/** True if a container restarts after this exit code: by its own rules, its own restart policy, or the pod's.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy */
export function restartsAfter(container: Restartable, spec: PodSpec, exitCode: number): boolean {
  if (container.restartPolicy && ruleFor(container, exitCode)) return true;
  switch (container.restartPolicy ?? spec.restartPolicy) {
    case "Never":
      return false;
    case "OnFailure":
      return exitCode !== 0;
    default:
      return true;
  }
}

/** True if a container restarts after being killed for a failed probe. */
export function restartsKilled(container: Restartable, spec: PodSpec): boolean {
  return (container.restartPolicy ?? spec.restartPolicy) !== "Never";
}

/** True if this exit code restarts all containers of the pod in its sandbox.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-all-containers */
export function restartsAll(container: Restartable, exitCode: number): boolean {
  return ruleFor(container, exitCode)?.action === "RestartAllContainers";
}

/** True if any container of the pod has a RestartAllContainers rule. */
export function mayRestartAll({ containers, initContainers = [] }: PodSpec): boolean {
  return [...initContainers, ...containers].some(({ restartPolicyRules = [] }) =>
    restartPolicyRules.some(({ action }) => action === "RestartAllContainers"),
  );
}

/** The first matching rule with a known action. */
function ruleFor(
  { restartPolicyRules = [] }: Restartable,
  exitCode: number,
): Wire<k8s.V1ContainerRestartRule> | undefined {
  const rule = restartPolicyRules.find(({ exitCodes }) => {
    const named = exitCodes?.values?.includes(exitCode) === true;
    return (exitCodes?.operator === "In" && named) || (exitCodes?.operator === "NotIn" && !named);
  });
  return rule && ["Restart", "RestartAllContainers"].includes(rule.action) ? rule : undefined;
}
