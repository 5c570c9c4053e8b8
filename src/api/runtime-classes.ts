import { onAbort, type Runnable } from "../lib/runnables.ts";
import type { RuntimeClass } from "../objects.ts";
import type { RuntimeClasses } from "../runtime/ports.ts";
import type { ListerDeps } from "./listers.ts";
import { createReflector } from "./reflector.ts";

/** Maximum time that the first pod with a runtime class waits for the list, milliseconds. */
const firstListTimeoutMs = 10_000;

/** Reads the cluster's RuntimeClasses by one watch, which the first pod with a runtime class starts, as most nodes never have
 *  such a pod.
 *  @see https://kubernetes.io/docs/concepts/containers/runtime-class/ */
export function createRuntimeClasses(deps: ListerDeps): RuntimeClasses & Runnable {
  const reflector = createReflector<RuntimeClass>({ ...deps, path: "/apis/node.k8s.io/v1/runtimeclasses" });
  const wanted = Promise.withResolvers<void>();
  return {
    name: "runtime classes",
    async handler(name, signal) {
      wanted.resolve();
      if (!reflector.synced())
        await listed(reflector.ready(deps.clock.within(firstListTimeoutMs, signal)), name, signal);
      const found = reflector.get(undefined, name);
      if (!found) throw new Error(`runtimeclass.node.k8s.io "${name}" not found`);
      return found.handler;
    },
    async run(signal) {
      await Promise.race([wanted.promise, onAbort(signal)]);
      if (!signal.aborted) await reflector.run(signal);
    },
  };
}

async function listed(ready: Promise<void>, name: string, signal: AbortSignal): Promise<void> {
  try {
    await ready;
  } catch (error) {
    signal.throwIfAborted();
    const why = "the API server has not listed the runtime classes yet";
    throw new Error(`failed to lookup RuntimeClass ${name}: ${why}`, { cause: error });
  }
}
