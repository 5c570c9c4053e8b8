import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { RuntimePod } from "../pipeline.ts";
import { containerNameLabel } from "./labels.ts";

/** The runtime's state of a pod; undefined if it does not have the pod. */
type ObservedPod = Pick<RuntimePod, "containers"> | undefined;

/** A runtime container's name in the pod spec. */
export function containerNameOf({ labels, metadata }: Pick<ContainerStatus, "labels" | "metadata">): string {
  return labels[containerNameLabel] ?? metadata?.name ?? "";
}

/** True for a container in its pod's newest sandbox; those in earlier sandboxes do not affect the start order. */
export function isInNewestSandbox({ sandboxes, sandboxOf }: RuntimePod, { id }: Pick<ContainerStatus, "id">): boolean {
  const [newest] = sandboxes;
  return newest !== undefined && sandboxOf.get(id) === newest.id;
}

/** True for a running container. */
export function isRunning({ state }: Pick<ContainerStatus, "state">): boolean {
  return state === ContainerState.CONTAINER_RUNNING;
}

/** The runs of a container, each a container of the runtime, newest first. */
export function runsOf(seen: ObservedPod, name: string): readonly ContainerStatus[] {
  return (seen?.containers ?? []).filter((run) => containerNameOf(run) === name);
}

/** The newest run of a container that `counts` accepts. */
export function newestRun(
  seen: ObservedPod,
  name: string,
  counts: (run: ContainerStatus) => boolean = () => true,
): ContainerStatus | undefined {
  return seen?.containers.find((run) => containerNameOf(run) === name && counts(run));
}
