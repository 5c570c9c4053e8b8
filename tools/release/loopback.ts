import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { withOwnHome } from "../../test/harness/helm.ts";
import { networkArgv } from "../../test/harness/namespaces.ts";
import { type ProcessId, run } from "../../test/harness/processes.ts";
import type { Layout } from "../../test/harness/state.ts";
import type { Tools } from "../../test/harness/tools.ts";
import { waitFor } from "../../test/harness/wait.ts";
import { type Registry, registryBy } from "./registry.ts";

/** A registry on the loopback of a network. */
export interface LoopbackRegistry {
  /** HOST:PORT. */
  readonly address: string;
  readonly registry: Registry;
}

/** The network, and what is started in it. */
export interface Place {
  readonly layout: Layout;
  readonly tools: Tools;
  startDaemon(role: string, argv: readonly string[]): Promise<ProcessId>;
}

const address = "127.0.0.1:5555";

/** Starts an empty one, until it answers. @param helm the program.
 *  @see https://distribution.github.io/distribution/about/configuration/ */
export async function startLoopbackRegistry(
  { layout, tools, startDaemon }: Place,
  helm: string,
): Promise<LoopbackRegistry> {
  const store = join(layout.registry, "release");
  mkdirSync(store);
  const config = {
    version: 0.1,
    log: { level: "warn" },
    storage: { filesystem: { rootdirectory: store } },
    http: { addr: address },
  };
  const file = join(layout.registry, "release.yaml");
  writeFileSync(file, stringify(config));
  await startDaemon("registry-release", [tools.path("docker-registry"), "serve", file]);
  const ask = networkArgv(layout, ["curl", "--silent", "--fail", `http://${address}/v2/`]);
  await waitFor("the registry for the release to answer", async () => (await run(ask)).code === 0, { everyMs: 100 });
  return { address, registry: registryBy({ helm, within: (argv) => withOwnHome(layout, argv), plain: true }) };
}
