import { CodedError } from "../../../src/lib/errors.ts";
import type { Runtime } from "../../../src/seams/runtime.ts";

/** Creates a lazy runtime, which is detected on first use: every call waits for `find` and is passed on to its result.
 *  @param find returns the same runtime each time, and throws while there is none.
 *  @param found returns the runtime if it has been detected already. */
export function lazyRuntime(
  find: (signal: AbortSignal) => Promise<Runtime>,
  found: () => Runtime | undefined,
): Omit<Runtime, typeof Symbol.asyncDispose> {
  const call =
    <Given extends readonly unknown[], Answer>(
      pick: (runtime: Runtime) => (...given: [...Given, AbortSignal]) => Promise<Answer>,
    ) =>
    async (...given: [...Given, AbortSignal]): Promise<Answer> => {
      const signal = given.at(-1) as AbortSignal;
      return pick(await find(signal))(...given);
    };
  return {
    version: call((it) => it.version),
    status: call((it) => it.status),
    runtimeConfig: call((it) => it.runtimeConfig),
    updateRuntimeConfig: call((it) => it.updateRuntimeConfig),
    runPodSandbox: call((it) => it.runPodSandbox),
    stopPodSandbox: call((it) => it.stopPodSandbox),
    removePodSandbox: call((it) => it.removePodSandbox),
    podSandboxStatus: call((it) => it.podSandboxStatus),
    listPodSandbox: call((it) => it.listPodSandbox),
    updatePodSandboxResources: async (request, signal) =>
      (await find(signal)).updatePodSandboxResources?.(request, signal),
    createContainer: call((it) => it.createContainer),
    startContainer: call((it) => it.startContainer),
    stopContainer: call((it) => it.stopContainer),
    removeContainer: call((it) => it.removeContainer),
    listContainers: call((it) => it.listContainers),
    containerStatus: call((it) => it.containerStatus),
    updateContainerResources: call((it) => it.updateContainerResources),
    reopenContainerLog: call((it) => it.reopenContainerLog),
    execSync: call((it) => it.execSync),
    listImages: call((it) => it.listImages),
    imageStatus: call((it) => it.imageStatus),
    removeImage: call((it) => it.removeImage),
    imageFsInfo: call((it) => it.imageFsInfo),
    containerStats: call((it) => it.containerStats),
    listContainerStats: call((it) => it.listContainerStats),
    exec: call((it) => it.exec),
    attach: call((it) => it.attach),
    portForward: call((it) => it.portForward),
    pullImage: async (request, signal, onProgress) => (await find(signal)).pullImage(request, signal, onProgress),
    podSandboxStats: async (id, signal) => (await find(signal)).podSandboxStats?.(id, signal),
    listPodSandboxStats: async (filter, signal) => (await find(signal)).listPodSandboxStats?.(filter, signal) ?? [],
    logRoots: async (signal) => (await find(signal)).logRoots?.(signal) ?? [],
    ownedResources: async (signal) => (await find(signal)).ownedResources?.(signal) ?? [],
    unsupportedReason: async (feature, signal) => (await find(signal)).unsupportedReason?.(feature, signal),
    lastAliveAt: () => found()?.lastAliveAt?.(),
    async checkpointContainer(request, signal) {
      const { checkpointContainer } = await find(signal);
      if (!checkpointContainer)
        throw new CodedError("unimplemented", "the container runtime does not support checkpoints");
      await checkpointContainer(request, signal);
    },
    async *events(signal) {
      const { events } = await find(signal);
      if (!events) throw new CodedError("unimplemented", "the runtime does not support events");
      yield* events(signal);
    },
    async *logs(containerId, options, signal) {
      const { logs } = await find(signal);
      if (!logs) throw new CodedError("unimplemented", "the runtime provides logs in files only");
      yield* logs(containerId, options, signal);
    },
  };
}
