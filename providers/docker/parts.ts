import type { Clock } from "../../src/lib/clock.ts";
import type { Logger } from "../../src/lib/log.ts";
import type { Host } from "../../src/seams/host.ts";
import type { ContainerLogLimits } from "../../src/seams/provider.ts";
import type { Docker } from "./client/client.ts";
import type { DockerConfig } from "./config.ts";
import type { AnswerCache } from "./client/answer-cache.ts";
import type { Memory } from "./memory.ts";

/** Shared dependencies of this provider's operations. */
export interface DockerParts {
  readonly docker: Docker;
  readonly config: DockerConfig;
  readonly nodeName: string;
  readonly containerLogs: ContainerLogLimits;
  /** The machine that the daemon runs on. */
  readonly host: Host;
  readonly clock: Clock;
  readonly log: Logger;
  readonly memory: Memory;
  readonly cache: AnswerCache;
}
