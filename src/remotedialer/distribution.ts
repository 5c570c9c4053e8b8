import { isIP } from "node:net";
import type { ApiClient } from "../api/client.ts";
import type { Clock } from "../lib/clock.ts";
import { hostIn } from "../lib/url-text.ts";
import type { Distribution, TunnelDeps } from "./tunnels.ts";

const retryDelayMs = 5_000;

/** Reads the cluster's distribution from the API server's version; retries until the server answers. @returns undefined for other
 *  distributions.
 *  @throws the signal's abort reason. */
export async function readDistribution(
  client: Pick<ApiClient, "get">,
  clock: Clock,
  signal: AbortSignal,
): Promise<Distribution | undefined> {
  for (;;) {
    try {
      const { gitVersion } = await client.get<{ readonly gitVersion: string }>("/version", { signal });
      return distributionIn(gitVersion);
    } catch {
      await clock.sleep(retryDelayMs, signal);
    }
  }
}

/** The distribution in an API server's version, such as v1.36.1+k3s1. */
function distributionIn(version: string): Distribution | undefined {
  const [, name] = /\+(k3s|rke2)/.exec(version) ?? [];
  return name as Distribution | undefined;
}

/** The API server of a kubeconfig, as the only endpoint. @param url of the server. */
export function onlyServer(url: string): TunnelDeps["servers"] {
  const server = new URL(url);
  const host = hostIn(server);
  const slice = {
    metadata: { name: "server", namespace: "default", uid: "" },
    addressType: isIP(host) === 6 ? "IPv6" : "IPv4",
    endpoints: [{ addresses: [host] }],
    ports: [{ name: "https", port: Number(server.port) || 443 }],
  };
  return { list: () => [slice], onChange: () => () => undefined, ready: async () => {} };
}
