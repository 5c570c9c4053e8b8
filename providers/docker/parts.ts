import type { ClockAndLog } from "../../src/lib/log.ts";
import type { Host } from "../../src/seams/host.ts";
import type { ContainerLogLimits } from "../../src/seams/provider.ts";
import type { DockerClient } from "./client/client.ts";
import type { DockerConfig } from "./config.ts";
import type { ResponseCache } from "./client/response-cache.ts";
import type { ContainerFactCache } from "./container-facts.ts";

/** Shared dependencies of this provider's operations. */
export interface DockerParts extends ClockAndLog {
  readonly docker: DockerClient;
  readonly config: DockerConfig;
  readonly nodeName: string;
  readonly containerLogs: ContainerLogLimits;
  /** The machine that the daemon runs on. */
  readonly host: Host;
  readonly facts: ContainerFactCache;
  readonly cache: ResponseCache;
}
