import type { ContainerStatus } from "../gen/cri.ts";
import type { Container, Pod, Resources } from "../objects.ts";
import { containerHash } from "../pod/hash.ts";
import { containerHashAnnotation } from "../pod/labels.ts";
import type { FatalProbeKind } from "./ports.ts";

export interface PlannedKill {
  readonly status: ContainerStatus;
  /** Text of the Killing event. */
  readonly message: string;
  /** Overrides the pod's own grace period. */
  readonly graceSeconds?: number | undefined;
}

/** Facts about a pod's containers that the runtime does not have. */
export interface ContainerFacts {
  /** The failed probe for which a container must be killed. */
  readonly failedProbe: (containerName: string, containerId: string) => FatalProbeKind | undefined;
  /** True if a container has passed its startup probe. */
  readonly hasStarted: (containerName: string, containerId: string) => boolean;
  /** The pod's status has the AllContainersRestarting condition. */
  readonly restartAll: boolean;
  /** Actual CPU and memory of a running container; undefined if unknown. */
  readonly actualResources: (status: ContainerStatus) => Resources | undefined;
  /** Actual CPU and memory of the pod as a whole. */
  readonly actualPodResources: (pod: Pod) => Resources | undefined;
  /** The limits of the pod's cgroup differ from the desired ones. */
  readonly podCgroupIsStale: boolean;
}

/** @param restarts whether the container will be restarted, which the event mentions.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes */
export function killForFailedProbe(
  what: "Container" | "Init container",
  container: Container,
  status: ContainerStatus,
  probe: FatalProbeKind,
  restarts: boolean,
): PlannedKill {
  const { terminationGracePeriodSeconds: graceSeconds } = container[`${probe}Probe`] ?? {};
  const message = `${what} ${container.name} failed ${probe} probe${restarts ? ", will be restarted" : ""}`;
  return { status, message, graceSeconds };
}

export function killInUnknownState(what: "Container" | "Init container", status: ContainerStatus): PlannedKill {
  return { status, message: `${what} is in "unknown" state, try killing it before restart` };
}

/** A container without our hash annotation (created by another tool) is left alone. */
export function isChanged(container: Container, status: ContainerStatus): boolean {
  const hash = status.annotations[containerHashAnnotation];
  return hash !== undefined && hash !== containerHash(container);
}
