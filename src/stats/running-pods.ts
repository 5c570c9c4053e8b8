import * as cri from "../gen/cri.ts";
import type { PodCache, RuntimePod } from "../pipeline.ts";
import { containerNameOf, isRunning, newestRun } from "../pod/runs.ts";

/** A measurable pod: it has a ready sandbox or a running container. */
export interface RunningPod {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly sandbox: cri.PodSandboxStatus | undefined;
  readonly containers: readonly cri.ContainerStatus[];
  /** True for a hostNetwork pod. */
  readonly onHostNetwork: boolean;
}

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
