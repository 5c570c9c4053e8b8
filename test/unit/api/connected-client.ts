import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo, Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ApiClientDeps, createApiConnections } from "../../../src/api/client.ts";
import { kubeconfigFile } from "../../../src/api/kubeconfig.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { silent } from "./fake-client.ts";

/** A client of a server on loopback. */
export async function connected(
  server: Server,
  cluster: object,
  scheme: "http" | "https",
  {
    port = 0,
    clock = systemClock(),
    ...limits
  }: Partial<Pick<ApiClientDeps, "clock" | "qps" | "burst" | "measures">> & {
    readonly port?: number;
  } = {},
) {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const dir = mkdtempSync(join(tmpdir(), "client-"));
  const kubeconfig = join(dir, "config");
  const url = `${scheme}://127.0.0.1:${port || (server.address() as AddressInfo).port}`;
  writeFileSync(join(dir, "token"), "one");
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      "current-context": "x",
      clusters: [{ name: "x", cluster: { server: url, ...cluster } }],
      contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
      users: [{ name: "x", user: { tokenFile: join(dir, "token") } }],
    }),
  );
  const connections = createApiConnections({ access: kubeconfigFile(kubeconfig), clock, log: silent });
  const client = connections.client({ userAgent: "graftlet/test", qps: 0, burst: 0, ...limits });
  return {
    connections,
    client,
    setToken: (token: string) => writeFileSync(join(dir, "token"), token),
    async [Symbol.asyncDispose]() {
      await connections[Symbol.asyncDispose]();
      await new Promise((resolve) => server.close(resolve));
      rmSync(dir, { recursive: true });
    },
  };
}
