import {
  type ContainerFilter,
  ListContainersRequest,
  ListPodSandboxRequest,
  type PodSandboxFilter,
  RuntimeServiceService as runtimeService,
} from "../../src/gen/cri.ts";
import type { Containers, Sandboxes } from "../../src/seams/runtime.ts";
import type { GrpcMethod } from "../../src/lib/grpc.ts";
import type { GrpcChannel } from "./client.ts";

/** Pod sandboxes over CRI. @param requestTimeoutMs deadline of an ordinary call; running a sandbox takes twice that. */
export function criSandboxes(runtime: GrpcChannel, requestTimeoutMs: number): Sandboxes {
  const send = sender(runtime);
  return {
    runPodSandbox: (request, signal) =>
      runtime.call(runtimeService.runPodSandbox, request, signal, 2 * requestTimeoutMs),
    stopPodSandbox: (podSandboxId, signal) => send(runtimeService.stopPodSandbox, { podSandboxId }, signal),
    removePodSandbox: (podSandboxId, signal) => send(runtimeService.removePodSandbox, { podSandboxId }, signal),
    podSandboxStatus: (podSandboxId, signal) =>
      runtime.call(runtimeService.podSandboxStatus, { podSandboxId, verbose: false }, signal),
    async listPodSandbox(filter: PodSandboxFilter | undefined, signal) {
      const request = ListPodSandboxRequest.fromPartial({ filter });
      return (await runtime.call(runtimeService.listPodSandbox, request, signal)).items;
    },
    updatePodSandboxResources: (request, signal) => send(runtimeService.updatePodSandboxResources, request, signal),
  };
}

/** Containers over CRI. Calls that wait for a container (stop, execSync) get that time in addition to the ordinary deadline. */
export function criContainers(runtime: GrpcChannel, requestTimeoutMs: number): Containers {
  const send = sender(runtime);
  return {
    createContainer: (request, signal) => runtime.call(runtimeService.createContainer, request, signal),
    startContainer: (containerId, signal) => send(runtimeService.startContainer, { containerId }, signal),
    stopContainer(containerId, graceSeconds, signal) {
      const request = { containerId, timeout: wholeSeconds(graceSeconds) };
      return send(runtimeService.stopContainer, request, signal, requestTimeoutMs + graceSeconds * 1000);
    },
    removeContainer: (containerId, signal) => send(runtimeService.removeContainer, { containerId }, signal),
    async checkpointContainer(request, signal) {
      // As in the kubelet, the deadline is at least the ordinary timeout.
      const timeoutMs = Math.max(requestTimeoutMs, Number(request.timeout) * 1000);
      const timeout = BigInt(Math.floor(timeoutMs / 1000));
      await send(runtimeService.checkpointContainer, { ...request, timeout }, signal, timeoutMs);
    },
    async listContainers(filter: ContainerFilter | undefined, signal) {
      const request = ListContainersRequest.fromPartial({ filter });
      return (await runtime.call(runtimeService.listContainers, request, signal)).containers;
    },
    containerStatus: (containerId, signal) =>
      runtime.call(runtimeService.containerStatus, { containerId, verbose: false }, signal),
    updateContainerResources: (request, signal) => send(runtimeService.updateContainerResources, request, signal),
    reopenContainerLog: (containerId, signal) => send(runtimeService.reopenContainerLog, { containerId }, signal),
    execSync(containerId, argv, timeoutSeconds, signal) {
      const limit = timeoutSeconds === 0 ? "none" : requestTimeoutMs + timeoutSeconds * 1000;
      const request = { containerId, cmd: [...argv], timeout: wholeSeconds(timeoutSeconds) };
      return runtime.call(runtimeService.execSync, request, signal, limit);
    },
  };
}

/** Returns a function for calls whose responses are empty. */
function sender({ call }: GrpcChannel) {
  return async <Request, Response>(
    method: GrpcMethod<Request, Response>,
    request: Request,
    signal: AbortSignal,
    limit?: number,
  ): Promise<void> => void (await call(method, request, signal, limit));
}

function wholeSeconds(seconds: number): bigint {
  return BigInt(Math.ceil(seconds));
}
