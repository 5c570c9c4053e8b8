import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, RuntimePod } from "../pipeline.ts";
import { podTerminationGraceAnnotation } from "../pod/labels.ts";
import { containerReference, podReference } from "../pod/reference.ts";
import type { Containers, Sandboxes } from "../seams/runtime.ts";
import { nameOf } from "./plan.ts";

export interface KillDeps {
  readonly runtime: Pick<Containers, "stopContainer"> & Pick<Sandboxes, "stopPodSandbox">;
  readonly events: EventSink;
}

/** Seconds that every container gets between SIGTERM and SIGKILL, however short the grace period. */
const leastGraceSeconds = 2;

export interface KillRequest {
  readonly status: ContainerStatus;
  /** Undefined for a pod that only the runtime knows. */
  readonly pod: Pod | undefined;
  /** Text of the Killing event. */
  readonly message: string;
  /** Overrides the pod's own grace period. */
  readonly graceSeconds: number | undefined;
}

/** Stops one container: gone already is success. */
export async function killContainer(
  { runtime, events }: KillDeps,
  request: KillRequest,
  signal: AbortSignal,
): Promise<void> {
  const { status, pod, message } = request;
  if (pod) events.event(containerReference(pod, nameOf(status)), "Normal", "Killing", message);
  const grace = request.graceSeconds ?? ownGrace(pod, status);
  try {
    await runtime.stopContainer(status.id, Math.max(leastGraceSeconds, grace), signal);
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
  }
}

/** Stops every running container of a pod side by side, then its sandboxes.
 *  @throws after all has been tried, when something would not stop. */
export async function killPod(
  deps: KillDeps,
  { observed, pod, graceSeconds }: { observed: RuntimePod; pod: Pod | undefined; graceSeconds: number | undefined },
  signal: AbortSignal,
): Promise<void> {
  const running = observed.containers.filter(({ state }) => state === ContainerState.CONTAINER_RUNNING);
  const stops = running.map((status) =>
    killContainer(deps, { status, pod, message: `Stopping container ${nameOf(status)}`, graceSeconds }, signal),
  );
  const failures = [...(await failuresOf(stops))];
  failures.push(...(await failuresOf(observed.sandboxes.map(({ id }) => stopSandbox(deps, id, signal)))));
  if (failures.length === 0) return;
  const text = failures.map(messageOf).join("; ");
  if (pod && !signal.aborted)
    deps.events.event(podReference(pod), "Warning", "FailedKillPod", `error killing pod: ${text}`);
  throw failures[0];
}

async function stopSandbox({ runtime }: KillDeps, sandboxId: string, signal: AbortSignal): Promise<void> {
  try {
    await runtime.stopPodSandbox(sandboxId, signal);
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
  }
}

async function failuresOf(work: readonly Promise<void>[]): Promise<unknown[]> {
  const settled = await Promise.allSettled(work);
  return settled.flatMap((result) => (result.status === "rejected" ? [result.reason as unknown] : []));
}

/** The grace period of a pod, in seconds; one that only the runtime knows kept it in an annotation. */
function ownGrace(pod: Pod | undefined, status: ContainerStatus): number {
  if (pod)
    return pod.metadata.deletionGracePeriodSeconds ?? pod.spec.terminationGracePeriodSeconds ?? leastGraceSeconds;
  return Number.parseInt(status.annotations[podTerminationGraceAnnotation] ?? "", 10) || leastGraceSeconds;
}
