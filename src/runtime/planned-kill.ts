import type { ContainerStatus } from "../gen/cri.ts";
import type { Container, Pod, Resources } from "../objects.ts";
import type { CondemningProbe } from "../pipeline.ts";
import { containerHash } from "../pod/hash.ts";
import { containerHashAnnotation } from "../pod/labels.ts";

export interface PlannedKill {
  readonly status: ContainerStatus;
  /** Text of the Killing event. */
  readonly message: string;
  /** In place of the pod's own grace period. */
  readonly graceSeconds?: number | undefined;
}

/** What others know of a pod's containers. */
export interface Judgement {
  /** The probe by whose verdict a container is to be killed. */
  readonly condemnedBy: (containerName: string, containerId: string) => CondemningProbe | undefined;
  /** Whether a container has passed its startup probe. */
  readonly hasStarted: (containerName: string, containerId: string) => boolean;
  /** Its status says that all its containers are to start anew. */
  readonly restartAll: boolean;
  /** What of CPU and memory is in force for a container that runs; undefined where nothing is known of it. */
  readonly inForce: (status: ContainerStatus) => Resources | undefined;
  /** The same of the pod as a whole. */
  readonly wholeInForce: (pod: Pod) => Resources | undefined;
  /** The pod's cgroup is not limited to what it is to be. */
  readonly groupIsStale: boolean;
}

/** @param what `Container`, or `Init container` for those. @param restarts another one takes its place, which is worth saying.
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
