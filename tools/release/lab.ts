import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { findHelm, withOwnHome } from "../../test/harness/helm.ts";
import { networkArgv } from "../../test/harness/namespaces.ts";
import { run, must } from "../../test/harness/processes.ts";
import { type RuntimeRig, startRuntimeRig } from "../../test/harness/runtime-rig.ts";
import { type Registry, registryBy } from "./registry.ts";

/** Where a release is tried: a Docker Engine, and an empty registry on the loopback of a network of their own. */
export interface ReleaseLab extends AsyncDisposable {
  /** HOST:PORT of the registry. */
  readonly address: string;
  readonly registry: Registry;
  readonly rig: RuntimeRig;
  /** Runs helm as somebody who has nothing but it. */
  helm(...args: readonly string[]): Promise<string>;
  docker(...args: readonly string[]): Promise<string>;
}

const address = "127.0.0.1:5555";

/** Starts it. It is gone when disposed of, or when this process ends. */
export async function startReleaseLab(): Promise<ReleaseLab> {
  const helm = await findHelm();
  const rig = await startRuntimeRig("release", "docker", { kit: { programs: [], images: [] } });
  const { layout, tools } = rig;
  const within = (argv: readonly string[]): string[] => withOwnHome(layout, argv);
  try {
    await startRegistry(rig);
    return {
      address,
      rig,
      registry: registryBy({ helm, within, plain: true }),
      helm: (...args) => must(within([helm, ...args])),
      docker: (...args) =>
        must([tools.path("docker"), "--host", `unix://${layout.dockerSocket}`, ...args], { timeoutMs: 180_000 }),
      [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose](),
    };
  } catch (error) {
    await rig[Symbol.asyncDispose]();
    throw error;
  }
}

/** @see https://distribution.github.io/distribution/about/configuration/ */
async function startRegistry({ layout, tools, daemons }: RuntimeRig): Promise<void> {
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
  await daemons.start("registry-release", [tools.path("docker-registry"), "serve", file]);
  const ask = networkArgv(layout, ["curl", "--silent", "--fail", `http://${address}/v2/`]);
  await daemons.ready("registry-release", async () => (await run(ask)).code === 0);
}
