import { UpdateRuntimeConfigRequest } from "../gen/cri.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { Node } from "../objects.ts";
import type { Runtime } from "../seams/runtime.ts";

export interface PodCidrDeps extends ClockAndLog {
  readonly nodes: { onChange(listener: (node: Node | undefined) => void): () => void; node(): Node | undefined };
  readonly runtime: Pick<Runtime, "updateRuntimeConfig">;
}

const retryDelayMs = 5_000;
/** Maximum delay of the node's start, milliseconds: the runtime may be slow to answer. */
const startTimeoutMs = 10_000;

/** Passes the node's spec.podCIDRs to the runtime whenever they change.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/networking/ */
export function createPodCidr({ nodes, runtime, clock, log }: PodCidrDeps): Runnable {
  let passed = "";
  const passToRuntime = async (signal: AbortSignal): Promise<boolean> => {
    const podCidr = cidrsOf(nodes.node());
    if (podCidr === passed || podCidr === "") return true;
    try {
      const request = UpdateRuntimeConfigRequest.fromPartial({ runtimeConfig: { networkConfig: { podCidr } } });
      await runtime.updateRuntimeConfig(request, signal);
      passed = podCidr;
      log.info({ podCidr }, "pod CIDR passed to the runtime");
      return true;
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, podCidr }, "cannot pass pod CIDR to the runtime; retrying");
      return false;
    }
  };
  const first = Promise.withResolvers<void>();
  return {
    name: "pod CIDR",
    // Pods that start with the node get addresses from the right range.
    ready: (signal) => Promise.race([first.promise, onAbort(signal)]),
    async run(signal) {
      let wake = () => {};
      const patience = clock.after(startTimeoutMs, () => first.resolve());
      const unsubscribe = nodes.onChange(() => wake());
      while (!signal.aborted) {
        const changed = Promise.withResolvers<void>();
        wake = changed.resolve;
        const heard = await passToRuntime(signal);
        patience.cancel();
        first.resolve();
        await pause(clock, heard ? undefined : retryDelayMs, changed.promise, signal);
      }
      patience.cancel();
      unsubscribe();
    },
  };
}

function cidrsOf(node: Node | undefined): string {
  return (node?.spec?.podCIDRs ?? [node?.spec?.podCIDR ?? ""]).join(",");
}
