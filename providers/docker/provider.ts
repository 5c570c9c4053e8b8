import type { ProviderFactory } from "../../src/seams/provider.ts";
import { localHost } from "../local/host.ts";
import { readDockerConfig } from "./config.ts";
import { dockerRuntime } from "./runtime.ts";

/** The local machine with a Docker Engine on a unix socket. The daemon may have other users: the node touches only resources with its
 *  label. */
export const dockerProvider: ProviderFactory = async ({
  config,
  requestTimeoutMs,
  containerLogs,
  nodeName,
  clock,
  log,
}) => {
  const settings = readDockerConfig(config, nodeName);
  const host = localHost({ clock, ...(settings.inPod && { machinePid: 1 }) });
  const runtime = dockerRuntime({ config: settings, requestTimeoutMs, containerLogs, nodeName, host, clock, log });
  return {
    host,
    runtime,
    sharing: "shared",
    runtimeSocket: () => Promise.resolve(settings.socket),
    async [Symbol.asyncDispose]() {
      await runtime[Symbol.asyncDispose]();
      await host[Symbol.asyncDispose]();
    },
  };
};
