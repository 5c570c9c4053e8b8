import * as cri from "../gen/cri.ts";
import type { PodCache, RuntimePod } from "../pipeline.ts";

/** A measurable pod: it has a ready sandbox or a running container. */
export interface RunningPod {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly sandbox: cri.PodSandboxStatus | undefined;
  /** The newest of each name. */
  readonly containers: readonly cri.ContainerStatus[];
  /** True for a pod on the node's own network. */
  readonly onHostNetwork: boolean;
}

/** The running pods, without those that have ended. */
export function runningPods(cache: PodCache): readonly RunningPod[] {
  return cache.list().flatMap(runningPod);
}

function runningPod({ uid, name, namespace, sandboxes, containers }: RuntimePod): readonly RunningPod[] {
  const sandbox = sandboxes.find(({ state }) => state === cri.PodSandboxState.SANDBOX_READY);
  const newest = new Map<string, cri.ContainerStatus>();
  for (const container of containers) {
    const key = container.metadata?.name ?? "";
    if (container.state === cri.ContainerState.CONTAINER_RUNNING && !newest.has(key)) newest.set(key, container);
  }
  if (!sandbox && newest.size === 0) return [];
  const onHostNetwork = sandbox?.linux?.namespaces?.options?.network === cri.NamespaceMode.NODE;
  return [{ uid, name, namespace, sandbox, containers: [...newest.values()], onHostNetwork }];
}
