import {
  type ContainerFilter,
  ListContainersRequest,
  ListPodSandboxRequest,
  type PodSandboxFilter,
  RuntimeServiceService as runtimeService,
} from "../../src/gen/cri.ts";
import type { Containers, Sandboxes } from "../../src/seams/runtime.ts";
import type { GrpcChannel } from "./client.ts";

/** Pod sandboxes over CRI. @param requestTimeoutMs deadline of an ordinary call; running a sandbox takes twice that. */
export function criSandboxes(runtime: GrpcChannel, requestTimeoutMs: number): Sandboxes {
  return {
    runPodSandbox: (request, signal) =>
      runtime.call(runtimeService.runPodSandbox, request, signal, 2 * requestTimeoutMs),
    async stopPodSandbox(podSandboxId, signal) {
      await runtime.call(runtimeService.stopPodSandbox, { podSandboxId }, signal);
    },
    async removePodSandbox(podSandboxId, signal) {
      await runtime.call(runtimeService.removePodSandbox, { podSandboxId }, signal);
    },
    podSandboxStatus: (podSandboxId, signal) =>
      runtime.call(runtimeService.podSandboxStatus, { podSandboxId, verbose: false }, signal),
    async listPodSandbox(filter: PodSandboxFilter | undefined, signal) {
      const { items } = await runtime.call(
        runtimeService.listPodSandbox,
        ListPodSandboxRequest.fromPartial({ filter }),
        signal,
      );
      return items;
    },
    async updatePodSandboxResources(request, signal) {
      await runtime.call(runtimeService.updatePodSandboxResources, request, signal);
    },
  };
}

/** Containers over CRI. Calls that wait for a container (stop, execSync) get that time in addition to the ordinary deadline. */
export function criContainers(runtime: GrpcChannel, requestTimeoutMs: number): Containers {
  return {
    createContainer: (request, signal) => runtime.call(runtimeService.createContainer, request, signal),
    async startContainer(containerId, signal) {
      await runtime.call(runtimeService.startContainer, { containerId }, signal);
    },
    async stopContainer(containerId, graceSeconds, signal) {
      await runtime.call(
        runtimeService.stopContainer,
        { containerId, timeout: wholeSeconds(graceSeconds) },
        signal,
        requestTimeoutMs + graceSeconds * 1000,
      );
    },
    async removeContainer(containerId, signal) {
      await runtime.call(runtimeService.removeContainer, { containerId }, signal);
    },
    async checkpointContainer(request, signal) {
      // Like the kubelet: the ordinary timeout is the minimum.
      const timeoutMs = Math.max(requestTimeoutMs, Number(request.timeout) * 1000);
      const timeout = BigInt(Math.floor(timeoutMs / 1000));
      await runtime.call(runtimeService.checkpointContainer, { ...request, timeout }, signal, timeoutMs);
    },
    async listContainers(filter: ContainerFilter | undefined, signal) {
      const { containers } = await runtime.call(
        runtimeService.listContainers,
        ListContainersRequest.fromPartial({ filter }),
        signal,
      );
      return containers;
    },
    containerStatus: (containerId, signal) =>
      runtime.call(runtimeService.containerStatus, { containerId, verbose: false }, signal),
    async updateContainerResources(request, signal) {
      await runtime.call(runtimeService.updateContainerResources, request, signal);
    },
    async reopenContainerLog(containerId, signal) {
      await runtime.call(runtimeService.reopenContainerLog, { containerId }, signal);
    },
    execSync(containerId, argv, timeoutSeconds, signal) {
      const limit = timeoutSeconds === 0 ? "none" : requestTimeoutMs + timeoutSeconds * 1000;
      return runtime.call(
        runtimeService.execSync,
        { containerId, cmd: [...argv], timeout: wholeSeconds(timeoutSeconds) },
        signal,
        limit,
      );
    },
  };
}

function wholeSeconds(seconds: number): bigint {
  return BigInt(Math.ceil(seconds));
}
