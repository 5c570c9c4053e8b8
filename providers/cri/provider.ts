import type { ProviderFactory } from "../../src/seams/provider.ts";
import { localHost } from "../local/host.ts";
import { readCriConfig } from "./config.ts";
import { criRuntime } from "./runtime.ts";

/** The local machine with a CRI runtime on a unix socket. Only this node uses the runtime, as with the kubelet, unless `sharing`
 *  says otherwise. */
export const criProvider: ProviderFactory = async ({
  config,
  containerRuntimeEndpoint,
  imageServiceEndpoint,
  requestTimeoutMs,
  callHeaders,
  clock,
  log,
}) => {
  const { runtimeSocket, imageSocket, sharing, inPod } = readCriConfig(config, {
    containerRuntimeEndpoint,
    imageServiceEndpoint,
  });
  const host = localHost({ clock, ...(inPod && { machinePid: 1 }) });
  const headers = callHeaders && { callHeaders };
  const runtime = criRuntime({ runtimeSocket, imageSocket, requestTimeoutMs, ...headers, host, clock, log });
  return {
    host,
    runtime,
    sharing,
    runtimeSocket: () => Promise.resolve(runtimeSocket),
    async [Symbol.asyncDispose]() {
      await runtime[Symbol.asyncDispose]();
      await host[Symbol.asyncDispose]();
    },
  };
};
