import { createDockerClient } from "../../providers/docker/client/client.ts";
import { readDockerConfig } from "../../providers/docker/config.ts";
import { createResponseCache } from "../../providers/docker/client/response-cache.ts";
import { createContainerFactCache } from "../../providers/docker/container-facts.ts";
import type { DockerParts } from "../../providers/docker/parts.ts";
import { dockerRuntime } from "../../providers/docker/runtime.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { addresses } from "../harness/namespaces.ts";
import type { DockerRig } from "./runtime-docker.ts";
import type { RuntimeUnderTest } from "./runtime-pods.ts";

const requestTimeoutMs = 120_000;

/** A node's provider on a rig, whole and in parts. */
export interface DockerUnderTest extends RuntimeUnderTest {
  readonly parts: DockerParts;
}

export function dockerOn(
  rig: DockerRig,
  nodeName: string,
  containerLogs = { maxSizeBytes: 10 << 20, maxFiles: 5 },
): DockerUnderTest {
  const given = {
    config: readDockerConfig({ socket: `unix://${rig.socket}`, podCIDR: addresses.pods }, nodeName),
    nodeName,
    containerLogs,
    host: rig.host,
    clock: systemClock(),
    log: silentLog(),
  };
  const runtime: Runtime = dockerRuntime({ ...given, requestTimeoutMs });
  const docker = createDockerClient({ ...given, socket: given.config.socket, requestTimeoutMs });
  return {
    runtime,
    parts: { ...given, docker, facts: createContainerFactCache(), cache: createResponseCache() },
    image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
    missingImage: "registry.k8s.io/contract/no-such:1",
    logDirectory: rig.layout.podLogs,
    async [Symbol.asyncDispose]() {
      docker.close();
      await runtime[Symbol.asyncDispose]();
    },
  };
}
