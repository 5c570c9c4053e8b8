import { createAdmission } from "../admission/chain.ts";
import { createPreemption } from "../admission/preemption.ts";
import { ContainerState } from "../gen/cri.ts";
import type { Cluster, KubeletDeps, Observed } from "./kubelet.ts";
import type { Node } from "../objects.ts";
import type { Admission, PodPreemptor, RuntimePod } from "../pipeline.ts";
import { newestRun } from "../pod/runs.ts";

/** What is built after it. */
export interface AdmissionOf {
  /** What every source first wanted has been taken in. */
  readonly takenIn: () => boolean;
  readonly preemptor: PodPreemptor;
}

/** What decides whether a pod may run here, and whether one that runs may have something else. */
export function composeAdmission(
  { config: { kubelet, nodeName }, client, metrics: { measures }, clock, log }: KubeletDeps,
  { nodes, events }: Cluster,
  { agent, devices, pleg }: Observed,
  { takenIn, preemptor }: AdmissionOf,
): Admission {
  const allocator = devices.allocator({
    allocatable: agent.allocatable,
    sourcesSeen: takenIn,
    isRunning: (uid, name) => runsIn(pleg.cache.get(uid), name),
  });
  const freshNode = (signal: AbortSignal) => client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal });
  const makeRoom = createPreemption({ preemptor, events, measures, clock, log });
  return createAdmission({ ...kubelet, ...agent, node: nodes, freshNode, devices: allocator, makeRoom, log });
}

function runsIn(seen: RuntimePod | undefined, containerName: string): boolean {
  return newestRun(seen, containerName, ({ state }) => state === ContainerState.CONTAINER_RUNNING) !== undefined;
}
