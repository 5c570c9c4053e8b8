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
  readonly isTerminating: boolean;
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
export function podPhase({ pod, statuses, isTerminating, initialized }: PhaseInput): Phase {
  const init = pod.spec.initContainers ?? [];
  const situationsOf = (containers: readonly Container[]) =>
    containers.map((container) => situationOf(pod, container, statuses));
  const plainInit = situationsOf(init.filter((container) => !isSidecar(container)));
  const sidecars = situationsOf(init.filter(isSidecar));
  const main = situationsOf(pod.spec.containers);

  if (plainInit.some((one) => one.kind === "stopped" && one.exitCode !== 0 && !one.restartable)) return "Failed";
  const initPending = plainInit.some(({ kind }) => kind !== "stopped");
  const sidecarPending = sidecars.some(
    (one) => one.kind === "waiting" || one.kind === "odd" || (one.kind === "running" && !one.started),
  );
  if (initPending || (sidecarPending && !initialized)) return "Pending";
  // A stopped sidecar does not affect the phase.
  const counted = [...sidecars.filter(({ kind }) => kind !== "stopped"), ...main];
  if (counted.some(({ kind }) => kind === "waiting")) return "Pending";
  if (counted.some(({ kind }) => kind === "unknown" || kind === "odd")) return "Pending";
  if (counted.some(({ kind }) => kind === "running")) return "Running";
  if (main.length === 0) return "Pending";
  const succeeded = main.every((one) => one.kind === "stopped" && one.exitCode === 0 && !one.waiting);
  const outcome = succeeded ? "Succeeded" : "Failed";
  if (isTerminating && !isStaticPod(pod)) return outcome;
  return main.some((one) => one.kind === "stopped" && one.restartable) ? "Running" : outcome;
}

/** State of a container for the phase: a container waiting for its restart counts as stopped; `odd` is a status without any state. */
type ContainerSituation =
  | { readonly kind: "running"; readonly started: boolean }
  | { readonly kind: "stopped"; readonly exitCode: number; readonly restartable: boolean; readonly waiting: boolean }
  | { readonly kind: "waiting" | "unknown" | "odd" };

function situationOf({ spec }: Pod, container: Container, statuses: readonly ContainerStatus[]): ContainerSituation {
  const status = statuses.find(({ name }) => name === container.name);
  if (!status) return { kind: "unknown" };
  if (status.state?.running) return { kind: "running", started: status.started === true };
  const ended = status.state?.terminated ?? (status.state?.waiting && status.lastState?.terminated);
  if (ended) {
    const restartable = ended.reason === restartingAllReason || restartsAfter(container, spec, ended.exitCode);
    return { kind: "stopped", exitCode: ended.exitCode, restartable, waiting: status.state?.waiting !== undefined };
  }
  return { kind: status.state?.waiting ? "waiting" : "odd" };
}
