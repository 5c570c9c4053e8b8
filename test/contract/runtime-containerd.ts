import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { type Duplex, duplexPair } from "node:stream";
import { buildImages } from "../cluster/images/build.ts";
import { writeContainerdConfig } from "../harness/containerd.ts";
import { type Daemons, createDaemons } from "../harness/daemons.ts";
import { startKeeper } from "../harness/keeping.ts";
import { createNetwork, networkArgv, startHolder } from "../harness/namespaces.ts";
import { start } from "../harness/processes.ts";
import { registryArgv, writeRegistryConfigs } from "../harness/registry.ts";
import { type Layout, isHeld, layoutOf, readState, takeLease, writeState } from "../harness/state.ts";
import { tearDown } from "../harness/teardown.ts";
import { findTools } from "../harness/tools.ts";
import type { Address } from "../../src/seams/host.ts";

/** A containerd with registries of its own, in a network of its own, and no cluster around it. */
export interface ContainerdRig extends AsyncDisposable {
  readonly layout: Layout;
  readonly daemons: Daemons;
  /** A connection from inside the containerd's network, where its streaming server listens. */
  dial(to: Address): Promise<Duplex>;
}

/** Debian's containerd as the test cluster has it, without the cluster. Removed when disposed of or when this process ends. */
export async function startContainerdRig(name: string): Promise<ContainerdRig> {
  const say = (line: string): void => console.error(line);
  const layout = layoutOf(name);
  const tools = await findTools(say);
  const images = await buildImages(tools, say);
  const first = { nodeName: name, owned: true, privatePassword: randomBytes(9).toString("base64url") };
  if (isHeld(layout)) throw new Error(`the rig ${name} is in use by another process: wait for its end`);
  await tearDown(layout);
  if (!takeLease(layout, first)) throw new Error(`the rig ${name} is being started by another process`);
  const keeper = await startKeeper(layout);
  const end = async () => {
    await tearDown(layout);
    keeper.release();
  };
  try {
    for (const dir of [layout.logs, layout.podLogs]) mkdirSync(dir);
    await writeRegistryConfigs(layout, images, first.privatePassword);
    await createNetwork(layout);
    const holder = await startHolder(layout, name);
    const state = readState(layout);
    if (state) writeState(layout, { ...state, holder });
    const daemons = createDaemons({ layout, tools, holder });
    writeContainerdConfig(layout);
    await daemons.start("registry-open", registryArgv(tools, layout, "open"));
    await daemons.startContainerd();
    return { layout, daemons, dial: (to) => dialInside(layout, to), [Symbol.asyncDispose]: end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** The far end is socat in the rig's network: its standard input and output are the connection. */
async function dialInside(layout: Layout, to: Address): Promise<Duplex> {
  const target =
    "unix" in to ? `UNIX-CONNECT:${to.unix}` : `TCP:${to.host.includes(":") ? `[${to.host}]` : to.host}:${to.port}`;
  const socat = start(networkArgv(layout, ["socat", "-", target]), { stdio: ["pipe", "pipe", "inherit"] });
  if (!socat.stdin || !socat.stdout) throw new Error("socat has no standard streams");
  const [near, far] = duplexPair();
  far.pipe(socat.stdin);
  socat.stdout.pipe(far);
  near.once("close", () => socat.kill());
  return near;
}
