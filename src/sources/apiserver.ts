import type { ApiClient } from "../api/client.ts";
import { createReflector, type Reflector } from "../api/reflector.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Pod } from "../objects.ts";

export interface ApiServerSourceDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly nodeName: string;
  /** Receives the complete set of pods bound to the node at each change. */
  readonly set: (pods: readonly Pod[]) => void;
  /** Resolves when pods may be passed on: admission needs the Node, which a kubelet therefore reads first. */
  readonly after?: (signal: AbortSignal) => Promise<void>;
}

/** Source of the pods that the scheduler bound to this node. A pod recreated under the same name between two reads appears with a new
 *  UID; the set never contains both.
 *  @see https://kubernetes.io/docs/concepts/architecture/#kubelet */
export function createApiServerSource(deps: ApiServerSourceDeps): Runnable {
  const { client, clock, log, nodeName, set, after } = deps;
  const push = () => set(reflector.list());
  let isLogged = false;
  const replace = (pods: readonly Pod[]) => {
    if (!isLogged) log.info({ pods: pods.length }, "listed the node's pods");
    isLogged = true;
    push();
  };
  const reflector: Reflector<Pod> = createReflector<Pod>({
    client,
    clock,
    log,
    path: "/api/v1/pods",
    fieldSelector: `spec.nodeName=${nodeName}`,
    // Short, because pods wait for this watch.
    maxRetryDelayMs: 1_000,
    handler: {
      replace,
      changed: (pod, type) =>
        type === "deleted" && reflector.get(pod.metadata.namespace, pod.metadata.name) ? undefined : push(),
    },
  });
  return {
    name: "pods of the API server",
    async run(signal) {
      if (after) await after(signal).catch(() => undefined);
      if (!signal.aborted) await reflector.run(signal);
    },
  };
}
