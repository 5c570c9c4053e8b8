import type { Clock } from "../lib/clock.ts";
import { timed } from "../lib/timed.ts";
import { type RuntimeCall, wrapCalls } from "../seams/runtime-calls.ts";
import type { Runtime } from "../seams/runtime.ts";

/** Calls to the runtime, by the kubelet's operation types: `run_podsandbox`, `list_containers`. */
export interface RuntimeMeasures {
  called(operation: string, ms: number, failed: boolean): void;
  /** @param handler of the RuntimeClass; empty for the runtime's default. */
  sandboxRun(handler: string, ms: number, failed: boolean): void;
}

/** The kubelet's name of a call: in snake case, with podsandbox as one word. */
function operationOf(call: RuntimeCall): string {
  if (call === "updateContainerResources") return "update_container";
  return call
    .replace(/PodSandbox/, "_podsandbox")
    .replace(/podSandbox/, "podsandbox")
    .replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Wraps a runtime so that every call is counted and timed. */
export function measuredRuntime(runtime: Runtime, measures: RuntimeMeasures, clock: Clock): Runtime {
  const measured = wrapCalls(runtime, (name, call) =>
    timed(clock, call, (ms, failed) => measures.called(operationOf(name), ms, failed)),
  );
  const runPodSandbox: Runtime["runPodSandbox"] = (request, signal) =>
    timed(
      clock,
      () => measured.runPodSandbox(request, signal),
      (ms, failed) => measures.sandboxRun(request.runtimeHandler, ms, failed),
    );
  return { ...measured, runPodSandbox };
}
