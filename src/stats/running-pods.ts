import * as cri from "../gen/cri.ts";
import type { PodCache, RuntimePod } from "../pipeline.ts";
import { containerNameOf, newestRun } from "../pod/runs.ts";

/** What of a pod can be measured: it has a sandbox that is ready, or a container that runs. */
export interface RunningPod {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly sandbox: cri.PodSandboxStatus | undefined;
  /** The newest of each name. */
  readonly containers: readonly cri.ContainerStatus[];
  /** It has the node's network, not one of its own. */
  readonly onHostNetwork: boolean;
}

/** The pods that run; those that have ended are absent. */
export function runningPods(cache: PodCache): readonly RunningPod[] {
  return cache.list().flatMap(runningPod);
}

function runningPod(pod: RuntimePod): readonly RunningPod[] {
  const { uid, name, namespace, sandboxes } = pod;
  const sandbox = sandboxes.find(({ state }) => state === cri.PodSandboxState.SANDBOX_READY);
  const containers = pod.containers.filter((run) => run === newestRun(pod, containerNameOf(run), isRunning));
  if (!sandbox && containers.length === 0) return [];
  const onHostNetwork = sandbox?.linux?.namespaces?.options?.network === cri.NamespaceMode.NODE;
  return [{ uid, name, namespace, sandbox, containers, onHostNetwork }];
}

function isRunning({ state }: cri.ContainerStatus): boolean {
  return state === cri.ContainerState.CONTAINER_RUNNING;
}
