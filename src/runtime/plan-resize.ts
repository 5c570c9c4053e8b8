import type { ContainerStatus } from "../gen/cri.ts";
import type { Container, Pod, Resources } from "../objects.ts";
import {
  type ResizableAmounts,
  type ResizableResource,
  amountsOf,
  effectiveResources,
  sameAmounts,
} from "../pod/pod-resources.ts";
import type { ContainerFacts, PlannedKill } from "./planned-kill.ts";

/** A running container that is resized in place. */
export interface ContainerResize {
  readonly container: Container;
  readonly containerId: string;
  readonly from: Resources;
  readonly to: Resources;
}

/** How a container gets its new resources: by a restart, or in place. */
export type ResizeAction = { readonly kill: PlannedKill } | { readonly resize: ContainerResize };

/** Compares a running container's resources with its allocation; the resize policy decides whether a difference needs a restart.
 *  @returns undefined if they are equal.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/#container-resize-policies */
export function planResize(
  { spec }: Pod,
  container: Container,
  status: ContainerStatus,
  { actualResources }: ContainerFacts,
): ResizeAction | undefined {
  const from = actualResources(status);
  if (!from) return undefined;
  const to = effectiveResources(container.resources, spec.resources);
  const changed = changedResources(amountsOf(from), amountsOf(to));
  if (changed.length === 0) return undefined;
  const restarts = container.resizePolicy?.some(
    ({ resourceName, restartPolicy }) =>
      restartPolicy === "RestartContainer" && changed.some((name) => name === resourceName),
  );
  if (!restarts) return { resize: { container, containerId: status.id, from, to } };
  const message = `Container ${container.name} resize requires restart`;
  return { kill: { status, message } };
}

/** True if the pod-level resources, or the limits of the pod's cgroup, differ from the allocation. */
export function resizesPodLevel(pod: Pod, { actualPodResources, podCgroupIsStale }: ContainerFacts): boolean {
  return (
    podCgroupIsStale || !sameAmounts(amountsOf(pod.spec.resources ?? {}), amountsOf(actualPodResources(pod) ?? {}))
  );
}

/** Containers whose amount of a resource changes, in resize order: those that shrink first, to make room for those that grow; compared
 *  by limit, or by request if the limit is unchanged. */
export function inResizeOrder(
  resizes: readonly ContainerResize[],
  name: ResizableResource,
): readonly ContainerResize[] {
  const less: ContainerResize[] = [];
  const more: ContainerResize[] = [];
  for (const resize of resizes) {
    const [from, to] = [amountsOf(resize.from), amountsOf(resize.to)];
    const difference = to[`${name}Limit`] - from[`${name}Limit`] || to[`${name}Request`] - from[`${name}Request`];
    if (difference < 0) less.unshift(resize);
    if (difference > 0) more.push(resize);
  }
  return [...less, ...more];
}

function changedResources(from: ResizableAmounts, to: ResizableAmounts): readonly ResizableResource[] {
  return (["cpu", "memory"] as const).filter(
    (name) => from[`${name}Limit`] !== to[`${name}Limit`] || from[`${name}Request`] !== to[`${name}Request`],
  );
}
