import type { Container, PodSpec } from "../objects.ts";

/** Whether a container that ended with this exit code is started again: by its own restart policy, else by its pod's.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy */
export function restartsAfter(container: Container, spec: PodSpec, exitCode: number): boolean {
  switch (container.restartPolicy ?? spec.restartPolicy) {
    case "Never":
      return false;
    case "OnFailure":
      return exitCode !== 0;
    default:
      return true;
  }
}
