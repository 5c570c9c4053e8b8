import {
  type ContainerStatsFilter,
  ListContainerStatsRequest,
  ListPodSandboxStatsRequest,
  type PodSandboxStatsFilter,
  RuntimeServiceService as runtimeService,
} from "../../src/gen/cri.ts";
import type { Stats } from "../../src/seams/runtime.ts";
import type { GrpcChannel } from "./client.ts";

/** Resource usage over CRI. Older runtimes answer the sandbox operations with `unimplemented`. */
export function criStats(runtime: GrpcChannel): Required<Stats> {
  return {
    async containerStats(containerId, signal) {
      return (await runtime.call(runtimeService.containerStats, { containerId }, signal)).stats;
    },
    async listContainerStats(filter: ContainerStatsFilter | undefined, signal) {
      return (
        await runtime.call(runtimeService.listContainerStats, ListContainerStatsRequest.fromPartial({ filter }), signal)
      ).stats;
    },
    async podSandboxStats(podSandboxId, signal) {
      return (await runtime.call(runtimeService.podSandboxStats, { podSandboxId }, signal)).stats;
    },
    async listPodSandboxStats(filter: PodSandboxStatsFilter | undefined, signal) {
      return (
        await runtime.call(
          runtimeService.listPodSandboxStats,
          ListPodSandboxStatsRequest.fromPartial({ filter }),
          signal,
        )
      ).stats;
    },
  };
}
