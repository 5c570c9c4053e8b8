import type { ContainerStatus } from "../gen/cri.ts";
import type { RuntimePod } from "../pipeline.ts";
import { containerNameLabel } from "../pod/labels.ts";

/** The newest status of a container by name. */
export function newestOf(observed: RuntimePod, name: string): ContainerStatus | undefined {
  return observed.containers.find((status) => nameOf(status) === name);
}

/** The name that the pod spec gives a container. */
export function nameOf(status: Pick<ContainerStatus, "labels" | "metadata">): string {
  return status.labels[containerNameLabel] ?? status.metadata?.name ?? "";
}
