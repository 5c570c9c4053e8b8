import type { Container, ContainerStatus, Pod } from "../objects.ts";
import { isSidecar, isStaticPod } from "./containers.ts";
import { restartsAfter } from "./restart.ts";
import { restartingAllReason } from "./restart-all.ts";

export type Phase = "Pending" | "Running" | "Succeeded" | "Failed";

export interface PhaseInput {
  readonly pod: Pod;
  /** Statuses of init and main containers. */
  readonly statuses: readonly ContainerStatus[];
  /** The pod is terminating: no container restarts. */
  readonly ending: boolean;
  /** A main container has been created in the pod's current sandbox. */
  readonly initialized: boolean;
}

/** Succeeded and Failed are final. */
export function isTerminal(phase: string | undefined): phase is "Succeeded" | "Failed" {
  return phase === "Succeeded" || phase === "Failed";
}

/** True if a pod is being deleted or its phase is final. */
export function isEnding({ metadata, status }: Pod): boolean {
  return metadata.deletionTimestamp !== undefined || isTerminal(status?.phase);
}

/** Phase of a pod from its container statuses alone. Final phases never revert: the caller keeps an old one.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase */
export function podPhase({ pod, statuses, ending, initialized }: PhaseInput): Phase {
  const init = pod.spec.initContainers ?? [];
  const look = (containers: readonly Container[]) =>
    containers.map((container) => situationOf(pod, container, statuses));
  const plainInit = look(init.filter((container) => !isSidecar(container)));
  const sidecars = look(init.filter(isSidecar));
  const main = look(pod.spec.containers);

  if (plainInit.some((one) => one.is === "stopped" && one.exitCode !== 0 && !one.restartable)) return "Failed";
  const initPending = plainInit.some(({ is }) => is !== "stopped");
  const sidecarPending = sidecars.some(
    (one) => one.is === "waiting" || one.is === "odd" || (one.is === "running" && !one.started),
  );
  if (initPending || (sidecarPending && !initialized)) return "Pending";
  // A stopped sidecar does not affect the phase.
  const counted = [...sidecars.filter(({ is }) => is !== "stopped"), ...main];
  if (counted.some(({ is }) => is === "waiting")) return "Pending";
  if (counted.some(({ is }) => is === "unknown" || is === "odd")) return "Pending";
  if (counted.some(({ is }) => is === "running")) return "Running";
  if (main.length === 0) return "Pending";
  const succeeded = main.every((one) => one.is === "stopped" && one.exitCode === 0 && !one.waiting);
  const outcome = succeeded ? "Succeeded" : "Failed";
  if (ending && !isStaticPod(pod)) return outcome;
  return main.some((one) => one.is === "stopped" && one.restartable) ? "Running" : outcome;
}

/** State of a container for the phase: a container waiting for its restart counts as stopped; `odd` is a status without any state. */
type Situation =
  | { readonly is: "running"; readonly started: boolean }
  | { readonly is: "stopped"; readonly exitCode: number; readonly restartable: boolean; readonly waiting: boolean }
  | { readonly is: "waiting" | "unknown" | "odd" };

function situationOf({ spec }: Pod, container: Container, statuses: readonly ContainerStatus[]): Situation {
  const status = statuses.find(({ name }) => name === container.name);
  if (!status) return { is: "unknown" };
  if (status.state?.running) return { is: "running", started: status.started === true };
  const ended = status.state?.terminated ?? (status.state?.waiting && status.lastState?.terminated);
  if (ended) {
    const restartable = ended.reason === restartingAllReason || restartsAfter(container, spec, ended.exitCode);
    return { is: "stopped", exitCode: ended.exitCode, restartable, waiting: status.state?.waiting !== undefined };
  }
  return { is: status.state?.waiting ? "waiting" : "odd" };
}
