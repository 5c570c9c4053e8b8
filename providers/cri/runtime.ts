import { RuntimeServiceService as runtimeService, VersionRequest } from "../../src/gen/cri.ts";
import type { ClockAndLog } from "../../src/lib/log.ts";
import type { Host } from "../../src/seams/host.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { createGrpcChannel } from "./client.ts";
import { criEvents } from "./events.ts";
import { criImages } from "./images.ts";
import { criContainers, criSandboxes } from "./pods.ts";
import { criStats } from "./stats.ts";
import { criStreams } from "./streams.ts";
import { runtimeConfig, unsupportedReason } from "./reported-config.ts";

export interface CriRuntimeOptions extends ClockAndLog {
  /** Absolute paths of sockets on the target. */
  readonly runtimeSocket: string;
  readonly imageSocket: string;
  /** Deadline of an ordinary call, milliseconds (KubeletConfiguration.runtimeRequestTimeout). */
  readonly requestTimeoutMs: number;
  /** Headers for the next call. */
  readonly callHeaders?: () => Readonly<Record<string, string>>;
  /** Dials the sockets and the runtime's streaming URLs on the target. */
  readonly host: Pick<Host, "dial" | "forUsers" | "budget">;
}

/** The Runtime seam over a CRI v1 socket. Connects on first use; disposing closes the connections. */
export function criRuntime({
  runtimeSocket,
  imageSocket,
  requestTimeoutMs,
  callHeaders,
  host,
  clock,
  log,
}: CriRuntimeOptions): Runtime {
  const common = { host, requestTimeoutMs, ...(callHeaders && { callHeaders }), clock };
  const runtime = createGrpcChannel({ path: runtimeSocket, ...common });
  const images = createGrpcChannel({ path: imageSocket, ...common });
  return {
    version: (signal) => runtime.call(runtimeService.version, VersionRequest.fromPartial({}), signal),
    status: (signal) => runtime.call(runtimeService.status, { verbose: false }, signal),
    runtimeConfig: (signal) => runtimeConfig(runtime, signal),
    unsupportedReason: (feature, signal) => unsupportedReason(runtime, feature, signal),
    async updateRuntimeConfig(request, signal) {
      await runtime.call(runtimeService.updateRuntimeConfig, request, signal);
    },
    events: criEvents({ runtime, clock, log }),
    ...criSandboxes(runtime, requestTimeoutMs),
    ...criContainers(runtime, requestTimeoutMs),
    ...criImages(images, runtime),
    ...criStats(runtime),
    ...criStreams(runtime, host.forUsers ?? host),
    async [Symbol.asyncDispose]() {
      runtime.close();
      images.close();
    },
  };
}
