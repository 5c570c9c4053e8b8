import type { Runtime } from "../../src/seams/runtime.ts";
import { createStreamServer } from "../../src/streams/stream-server.ts";
import { dockerBelongings } from "./belongings.ts";
import { createCapabilities } from "./capabilities.ts";
import { createDocker } from "./client.ts";
import { dockerContainers } from "./containers.ts";
import { dockerEvents } from "./events.ts";
import { dockerExec } from "./exec.ts";
import { createFollowing } from "./following.ts";
import { dockerImages } from "./images.ts";
import { dockerLogs } from "./logs.ts";
import { createLoopbackPorts } from "./loopback-ports.ts";
import { createMemory } from "./memory.ts";
import { createPodNetwork } from "./network.ts";
import type { DockerParts } from "./parts.ts";
import { createSandboxImage } from "./pause-image.ts";
import { dockerSandboxes } from "./sandboxes.ts";
import { dockerService } from "./service.ts";
import { dockerStats } from "./stats.ts";
import { dockerStreams } from "./streams.ts";

export interface DockerRuntimeOptions extends Omit<DockerParts, "docker" | "memory" | "following"> {
  /** Deadline of an ordinary call, milliseconds (KubeletConfiguration.runtimeRequestTimeout). */
  readonly requestTimeoutMs: number;
}

/** The Runtime seam over the Docker Engine API. Connects when first asked; disposing of it ends the streams that it serves and
 *  touches no pod. */
export function dockerRuntime({ requestTimeoutMs, ...given }: DockerRuntimeOptions): Runtime {
  const { config, host, clock, log } = given;
  const docker = createDocker({ socket: config.socket, host, requestTimeoutMs, clock });
  const parts: DockerParts = { ...given, docker, memory: createMemory(), following: createFollowing() };
  const network = createPodNetwork(parts);
  const sandboxImage = createSandboxImage(parts);
  const capabilities = createCapabilities(parts, sandboxImage);
  const loopbackPorts = createLoopbackPorts(parts);
  const streamServer = createStreamServer({ clock, log });
  return {
    ...dockerService({ parts, network, capabilities }),
    ...dockerSandboxes({ parts, network, capabilities, sandboxImage, loopbackPorts }),
    ...dockerContainers(parts),
    ...dockerExec(parts),
    ...dockerImages(parts),
    ...dockerStats(parts),
    ...dockerStreams(parts, streamServer),
    ...dockerLogs(parts),
    events: dockerEvents(parts),
    lacks: capabilities.lacks,
    belongings: (signal) => dockerBelongings(parts, signal),
    async [Symbol.asyncDispose]() {
      await streamServer[Symbol.asyncDispose]();
      docker.close();
    },
  };
}
