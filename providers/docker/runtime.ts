import type { Runtime } from "../../src/seams/runtime.ts";
import { dockerOwnedResources } from "./owned-resources.ts";
import { createCapabilities } from "./engine/capabilities.ts";
import { createDockerClient } from "./client/client.ts";
import { dockerContainers } from "./container/containers.ts";
import { dockerEvents } from "./events.ts";
import { dockerExec } from "./exec/process.ts";
import { createResponseCache } from "./client/response-cache.ts";
import { dockerImages } from "./image/images.ts";
import { dockerLogs } from "./logs/logs.ts";
import { createLoopbackPorts } from "./network/loopback-ports.ts";
import { createContainerFactCache } from "./container-facts.ts";
import { createPodNetwork } from "./network/pod-network.ts";
import type { DockerParts } from "./parts.ts";
import { createSandboxImage } from "./pause/image.ts";
import { dockerSandboxes } from "./sandbox/sandboxes.ts";
import { dockerEngineService } from "./engine/service.ts";
import { dockerStats } from "./stats/stats.ts";
import { dockerStreams } from "./streams.ts";

export interface DockerRuntimeOptions extends Omit<DockerParts, "docker" | "facts" | "cache"> {
  /** Deadline of an ordinary call, milliseconds (KubeletConfiguration.runtimeRequestTimeout). */
  readonly requestTimeoutMs: number;
}

/** The Runtime seam over the Docker Engine API. Connects on first use; disposing ends its streams and leaves pods alone. */
export function dockerRuntime({ requestTimeoutMs, ...given }: DockerRuntimeOptions): Runtime {
  const { config, host, clock } = given;
  const docker = createDockerClient({ socket: config.socket, host, requestTimeoutMs, clock });
  const parts: DockerParts = { ...given, docker, facts: createContainerFactCache(), cache: createResponseCache() };
  const network = createPodNetwork(parts);
  const sandboxImage = createSandboxImage(parts);
  const capabilities = createCapabilities(parts, sandboxImage);
  const loopbackPorts = createLoopbackPorts(parts);
  const { [Symbol.asyncDispose]: endStreams, ...streams } = dockerStreams(parts);
  return {
    ...dockerEngineService({ parts, network, capabilities }),
    ...dockerSandboxes({ parts, network, capabilities, sandboxImage, loopbackPorts }),
    ...dockerContainers(parts),
    ...dockerExec(parts),
    ...dockerImages(parts),
    ...dockerStats(parts),
    ...streams,
    ...dockerLogs(parts),
    events: dockerEvents(parts),
    unsupportedReason: capabilities.unsupportedReason,
    ownedResources: (signal) => dockerOwnedResources(parts, signal),
    async [Symbol.asyncDispose]() {
      await endStreams();
      docker.close();
    },
  };
}
