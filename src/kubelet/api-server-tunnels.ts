import { hostIn } from "../lib/url-text.ts";
import { isIP } from "node:net";
import type { AccessFile } from "../api/kubeconfig.ts";
import { type CredentialSource, createCredentials } from "../api/credentials.ts";
import { createServerEndpoints } from "../api/listers.ts";
import { createTunnels, type Distribution, type TunnelDeps, type Tunnels } from "../remotedialer/tunnels.ts";
import type { NodeContext } from "./deps.ts";

/** Retry delay for reading the API server's version, milliseconds. */
const retryDelayMs = 5_000;

/** Creates the tunnels through which an API server of k3s or RKE2 reaches this node; undefined if the node needs none. */
export function createApiServerTunnels(context: NodeContext): Tunnels | undefined {
  const { config, access, account, client, clock, log } = context;
  const { kubelet, advertisedPort, egressTunnel: wanted } = config;
  if (!access || wanted === "none" || !kubelet.enableServer) return undefined;
  // Read only if there are tunnels.
  let source: CredentialSource | undefined;
  const distribution = async (signal: AbortSignal) => {
    for (;;) {
      if (wanted !== undefined) return wanted;
      try {
        return distributionIn((await client.get<{ readonly gitVersion: string }>("/version", { signal })).gitVersion);
      } catch {
        await clock.sleep(retryDelayMs, signal);
      }
    }
  };
  const host = /^(0\.0\.0\.0|::)$/.test(kubelet.address) ? "127.0.0.1" : kubelet.address;
  return createTunnels({
    distribution,
    credentials: () => (source ??= createCredentials({ from: access, clock, log })).current(),
    servers: account ? createServerEndpoints({ ...account, clock, log }) : onlyServer(access),
    advertisedPort: advertisedPort ?? kubelet.port,
    kubelet: { host, port: kubelet.port },
    clock,
    log,
  });
}

/** The distribution in an API server's version, such as v1.36.1+k3s1. */
function distributionIn(version: string): Distribution | undefined {
  const [, name] = /\+(k3s|rke2)/.exec(version) ?? [];
  return name as Distribution | undefined;
}

/** The API server of a kubeconfig, as the only endpoint. */
function onlyServer(access: AccessFile): TunnelDeps["servers"] {
  const server = new URL(access.read().cluster.server);
  const host = hostIn(server);
  const addressType = isIP(host) === 6 ? "IPv6" : "IPv4";
  const ports = [{ name: "https", port: Number(server.port) || 443 }];
  const slice = {
    metadata: { name: "server", namespace: "default", uid: "" },
    addressType,
    endpoints: [{ addresses: [host] }],
    ports,
  };
  return { list: () => [slice], onChange: () => () => undefined, ready: async () => {} };
}
