import type { ContainerStatus } from "../../gen/cri.ts";
import type { PodCondition, PodStatus, Resources } from "../../objects.ts";
import type { RuntimePod, StatusReader } from "../../pipeline.ts";
import { placeholderStatus } from "../../pod/placeholder.ts";
import { amountsOf } from "../../pod/pod-resources.ts";
import type { ResourceStatuses } from "../../resource-manager.ts";
import type { AllocatedPod, DesiredPod } from "../../roles.ts";
import type { ContainerStarts } from "../../state/pod-table.ts";
import type { Column } from "../../state/records.ts";
import type { ContainerStatusInput } from "./container-status.ts";
import { generateStatus } from "./generate-status.ts";

/** Allocated and actuated resources of pods. */
export interface StatusAllocations {
  allocatedPod(pod: DesiredPod): AllocatedPod;
  /** Actuated pod-level resources; undefined if the pod has none. */
  podResources(pod: AllocatedPod): Resources | undefined;
  /** Actuated resources of a running container. */
  containerResources(pod: AllocatedPod, status: ContainerStatus): Resources;
}

/** Results of containers' probes. */
export interface StatusProbes {
  readiness(
    uid: string,
    ...container: Parameters<ContainerStatusInput["readiness"]>
  ): ReturnType<ContainerStatusInput["readiness"]>;
  started(uid: string, ...container: Parameters<ContainerStatusInput["started"]>): boolean | undefined;
}

export interface StatusGeneratorDeps {
  readonly status: StatusReader;
  readonly starts: Pick<Column<ContainerStarts>, "get">;
  /** Conditions of a pod's resize. */
  readonly resizeConditions: (uid: string) => readonly PodCondition[];
  readonly isPlaceholder: (pod: DesiredPod, observed: RuntimePod) => boolean;
  readonly allocations: StatusAllocations;
  readonly probes: StatusProbes;
  /** Health of a container's resources; undefined if the node does not report it. */
  readonly resourceHealth: ((pod: DesiredPod, containerName: string) => ResourceStatuses) | undefined;
  /** Containers' stop signals are shown (feature gate ContainerStopSignals). */
  readonly stopSignals: boolean;
  /** Mounts of image volumes show the image (feature gate ImageVolumeWithDigest). */
  readonly imageVolumeDigests: boolean;
  /** The target's addresses, primary first. */
  readonly hostIPs: () => readonly string[];
  /** The scheme of container IDs, such as `containerd`; undefined while unknown. */
  readonly runtimeName: () => string | undefined;
}

/** Generates a pod's status from an observation. */
export type StatusGenerator = (desired: DesiredPod, observed: RuntimePod, isTerminating: boolean) => PodStatus;

/** Creates the status generator. */
export function createStatusGenerator(deps: StatusGeneratorDeps): StatusGenerator {
  const { status, starts, resizeConditions, isPlaceholder, allocations, probes, resourceHealth, hostIPs } = deps;
  return (desired, observed, isTerminating) => {
    const { uid } = desired.metadata;
    if (isPlaceholder(desired, observed)) return placeholderStatus(desired, hostIPs());
    const pod = allocations.allocatedPod(desired);
    return generateStatus({
      pod,
      resize: resizeConditions(uid),
      actualPodResources: pod.spec.resources && allocations.podResources(pod),
      actualResources: (run) => amountsOf(allocations.containerResources(pod, run)),
      observed,
      isTerminating,
      previous: status.get(uid),
      failures: starts.get(uid)?.failures ?? new Map(),
      readiness: (name, id) => probes.readiness(uid, name, id),
      started: (name, id) => probes.started(uid, name, id),
      resourceHealth: resourceHealth && ((name) => resourceHealth(desired, name)),
      stopSignals: deps.stopSignals,
      imageVolumeDigests: deps.imageVolumeDigests,
      hostIPs: hostIPs(),
      runtimeName: deps.runtimeName() ?? "",
    });
  };
}
