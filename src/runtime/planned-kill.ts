import type { ContainerStatus } from "../gen/cri.ts";
import type { Container, Pod, Resources } from "../objects.ts";
import type { CondemningProbe } from "../pipeline.ts";
import { containerHash } from "../pod/hash.ts";
import { containerHashAnnotation } from "../pod/labels.ts";

export interface PlannedKill {
  readonly status: ContainerStatus;
  /** Text of the Killing event. */
  readonly message: string;
  /** Overrides the pod's own grace period. */
  readonly graceSeconds?: number | undefined;
}

/** Facts about a pod's containers beyond the runtime's view. */
export interface Judgement {
  /** The failed probe that a container is killed for. */
  readonly condemnedBy: (containerName: string, containerId: string) => CondemningProbe | undefined;
  /** True for a container that has passed its startup probe. */
  readonly hasStarted: (containerName: string, containerId: string) => boolean;
  /** The pod's status says that all its containers restart. */
  readonly restartAll: boolean;
  /** CPU and memory in force for a running container; undefined where unknown. */
  readonly inForce: (status: ContainerStatus) => Resources | undefined;
  /** CPU and memory in force for the pod as a whole. */
  readonly wholeInForce: (pod: Pod) => Resources | undefined;
  /** The limits of the pod's cgroup differ from the wanted ones. */
  readonly groupIsStale: boolean;
}

/** @param restarts the container starts again, which the event says.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes */
export function killCondemned(
  what: "Container" | "Init container",
  container: Container,
  status: ContainerStatus,
  probe: CondemningProbe,
  restarts: boolean,
): PlannedKill {
  const { terminationGracePeriodSeconds: graceSeconds } = container[`${probe}Probe`] ?? {};
  const message = `${what} ${container.name} failed ${probe} probe${restarts ? ", will be restarted" : ""}`;
  return { status, message, graceSeconds };
}

export function killUnknown(what: "Container" | "Init container", status: ContainerStatus): PlannedKill {
  return { status, message: `${what} is in "unknown" state, try killing it before restart` };
}

/** A container made without our hash annotation (by another tool) is left alone. */
export function isChanged(container: Container, status: ContainerStatus): boolean {
  const hash = status.annotations[containerHashAnnotation];
  return hash !== undefined && hash !== containerHash(container);
}
