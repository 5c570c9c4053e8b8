import type { Clock } from "../lib/clock.ts";
import { timed } from "../lib/timed.ts";
import type { RuntimeMeasures } from "../measures.ts";
import type { Runtime } from "../seams/runtime.ts";

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
} as const satisfies Partial<Record<keyof Runtime, string>>;

type Counted = keyof typeof operations;

/** Uncounted members: not a CRI call, or an endless stream. */
const others: Readonly<Record<Exclude<keyof Runtime, Counted>, true>> = {
  events: true,
  logs: true,
  logRoots: true,
  lacks: true,
  heardAt: true,
  belongings: true,
  [Symbol.asyncDispose]: true,
};

/** The same runtime with every call counted and timed. Absent members stay absent; it may be a class instance. */
export function measuredRuntime(runtime: Runtime, measures: RuntimeMeasures, clock: Clock): Runtime {
  const counted = Object.keys(operations).flatMap((name) => {
    const verb = name as Counted;
    const call = runtime[verb] as Call | undefined;
    return call ? [[verb, measured(call.bind(runtime), operations[verb], measures, clock)] as const] : [];
  });
  const calls = Object.fromEntries(counted) as Partial<Runtime>;
  const runPodSandbox: Runtime["runPodSandbox"] = (request, signal) =>
    timed(
      clock,
      () => (calls.runPodSandbox ?? runtime.runPodSandbox)(request, signal),
      (ms, failed) => measures.sandboxRun(request.runtimeHandler, ms, failed),
    );
  return { ...runtime, ...uncounted(runtime), ...calls, runPodSandbox };
}

function uncounted(runtime: Runtime): Partial<Runtime> {
  const names = Reflect.ownKeys(others) as (keyof typeof others)[];
  return Object.fromEntries(
    names.flatMap((name) => {
      const call = runtime[name] as ((...given: never[]) => unknown) | undefined;
      return call ? [[name, call.bind(runtime)] as const] : [];
    }),
  );
}

type Call = (...given: never[]) => Promise<unknown>;

function measured(call: Call, operation: string, measures: RuntimeMeasures, clock: Clock): Call {
  return (...given) =>
    timed(
      clock,
      () => call(...given),
      (ms, failed) => measures.called(operation, ms, failed),
    );
}
