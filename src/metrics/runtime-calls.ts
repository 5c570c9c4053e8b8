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

/** Counted calls, with the kubelet's names for them. */
const operations = {
  version: "version",
  status: "status",
  runtimeConfig: "runtime_config",
  updateRuntimeConfig: "update_runtime_config",
  runPodSandbox: "run_podsandbox",
  stopPodSandbox: "stop_podsandbox",
  removePodSandbox: "remove_podsandbox",
  podSandboxStatus: "podsandbox_status",
  listPodSandbox: "list_podsandbox",
  updatePodSandboxResources: "update_podsandbox_resources",
  createContainer: "create_container",
  startContainer: "start_container",
  stopContainer: "stop_container",
  removeContainer: "remove_container",
  listContainers: "list_containers",
  containerStatus: "container_status",
  updateContainerResources: "update_container",
  reopenContainerLog: "reopen_container_log",
  execSync: "exec_sync",
  checkpointContainer: "checkpoint_container",
  exec: "exec",
  attach: "attach",
  portForward: "port_forward",
  listImages: "list_images",
  imageStatus: "image_status",
  pullImage: "pull_image",
  removeImage: "remove_image",
  imageFsInfo: "image_fs_info",
  containerStats: "container_stats",
  listContainerStats: "list_container_stats",
  podSandboxStats: "podsandbox_stats",
  listPodSandboxStats: "list_podsandbox_stats",
} as const satisfies Readonly<Record<RuntimeCall, string>>;

/** The same runtime with every call counted and timed. */
export function measuredRuntime(runtime: Runtime, measures: RuntimeMeasures, clock: Clock): Runtime {
  const measured = wrapCalls(runtime, (name, call) =>
    timed(clock, call, (ms, failed) => measures.called(operations[name], ms, failed)),
  );
  const runPodSandbox: Runtime["runPodSandbox"] = (request, signal) =>
    timed(
      clock,
      () => measured.runPodSandbox(request, signal),
      (ms, failed) => measures.sandboxRun(request.runtimeHandler, ms, failed),
    );
  return { ...measured, runPodSandbox };
}
