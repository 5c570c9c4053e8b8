import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { RuntimePod } from "../pipeline.ts";
import { containerNameLabel } from "./labels.ts";

/** A pod as the runtime shows it; undefined for one that it does not have. */
type Seen = Pick<RuntimePod, "containers"> | undefined;

/** The name that the pod spec gives a container of the runtime. */
export function containerNameOf({ labels, metadata }: Pick<ContainerStatus, "labels" | "metadata">): string {
  return labels[containerNameLabel] ?? metadata?.name ?? "";
}

/** True for a container in its pod's newest sandbox: earlier ones have no say in the order of a start. */
export function isInNewestSandbox({ sandboxes, sandboxOf }: RuntimePod, { id }: Pick<ContainerStatus, "id">): boolean {
  const [newest] = sandboxes;
  return newest !== undefined && sandboxOf.get(id) === newest.id;
}

/** True for a run that has started and has not ended. */
export function isRunning({ state }: Pick<ContainerStatus, "state">): boolean {
  return state === ContainerState.CONTAINER_RUNNING;
}

/** The runs of a container: the runtime has one container for each, newest first. */
export function runsOf(seen: Seen, name: string): readonly ContainerStatus[] {
  return (seen?.containers ?? []).filter((run) => containerNameOf(run) === name);
}

/** The newest run of a container, of those that `counts` accepts. */
export function newestRun(
  seen: Seen,
  name: string,
  counts: (run: ContainerStatus) => boolean = () => true,
): ContainerStatus | undefined {
  return seen?.containers.find((run) => containerNameOf(run) === name && counts(run));
}
