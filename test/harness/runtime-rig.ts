import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { type Duplex, duplexPair } from "node:stream";
import { localHost } from "../../providers/local/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import type { Address, Host } from "../../src/seams/host.ts";
import { waitFor } from "./wait.ts";
import { targetArgv } from "../machines/enter.ts";
import { startMachine } from "../machines/machine.ts";
import { machineUnderTest } from "../machines/systems.ts";
import { buildImages } from "../cluster/images/build.ts";
import { type Kit, testKit } from "../cluster/tools/kits.ts";
import { agentAddresses } from "./agent-machine.ts";
import { clusterName } from "./cluster.ts";
import { type ContainerdVersion, containerdUnderTest } from "./containerd-version.ts";
import { type Daemons, createDaemons } from "./daemons.ts";
import { dockerUnderTest } from "./docker-version.ts";
import { startKeeper } from "./keeping.ts";
import { addresses, createNetwork, networkArgv, startHolder } from "./namespaces.ts";
import { must, type ProcessId, start } from "./processes.ts";
import { registryArgv, writeRegistryConfigs } from "./registry.ts";
import { guestUnderTest } from "../machines/guest-systems.ts";
import { isGuest } from "../matrix.ts";
import { hasSystemd, isMachine, isRemote, type ProviderName, runtimeDaemons } from "./runtime-daemon.ts";
import { createSshKeys } from "./sshd.ts";
import {
  type GuestSizes,
  type Layout,
  disown,
  isHeld,
  layoutOf,
  ownsKernel,
  readState,
  takeLease,
  writeState,
} from "./state.ts";
import { tearDown } from "./teardown.ts";
import { prepared } from "./prepared.ts";
import { type Tools, findTools } from "./tools.ts";
import { argvOf } from "./argv.ts";

/** A container runtime with registries of its own, in a network of its own, and no cluster around it. */
export interface RuntimeRig extends AsyncDisposable {
  readonly layout: Layout;
  readonly tools: Tools;
  readonly daemons: Daemons;
  /** What knows the user of the registry with credentials, beside `privateUser`. */
  readonly privatePassword: string;
  /** The machine that the runtime is on: commands and connections are made from inside. Its files are this machine's, so that
   *  what is mounted inside, and what is written below /etc, /run, /var/lib and /var/log, is not seen. */
  readonly host: Host;
  /** Lets it outlive this process: disposing it, or dying, does nothing any more. */
  release(): void;
}

export interface RuntimeRigOptions {
  /** Its machine's, where another machine is to be told from it. */
  readonly address?: string;
  /** The one under test unless given. */
  readonly containerd?: ContainerdVersion;
  /** The programs and images that it is brought up with; all that tests use unless given. */
  readonly kit?: Kit;
  /** What a target with a kernel of its own is given; `guestSizes` unless given. */
  readonly guest?: Partial<GuestSizes>;
}

/** The runtime as the test cluster has it, without the cluster; with an sshd beside it where the provider is one over SSH.
 *  Removed when disposed of or when this process ends.
 *  @param name tells rigs and clusters of one machine apart. */
export async function startRuntimeRig(
  name: string,
  provider: ProviderName,
  { address = addresses.node, containerd = containerdUnderTest(), kit = testKit, guest }: RuntimeRigOptions = {},
): Promise<RuntimeRig> {
  const say = (line: string): void => console.error(line);
  const layout = layoutOf(clusterName(name, "cri"));
  const docker = dockerUnderTest(provider);
  const tools = await findTools(say, containerd, kit, docker);
  const images = (kit === testKit && prepared()?.images) || (await buildImages(tools, say, kit.images));
  const privatePassword = randomBytes(9).toString("base64url");
  // One that has just been removed is held until its keeper has ended.
  await waitFor(`the rig ${name}, which another process uses, to be free`, () => !isHeld(layout));
  await tearDown(layout);
  const sizes = isGuest(provider) ? { guestSizes: { ...guestUnderTest(), ...guest } } : {};
  const system = isMachine(provider) ? { machineSystem: machineUnderTest() } : {};
  if (!takeLease(layout, { nodeName: name, provider, containerd, docker, privatePassword, ...sizes, ...system }))
    throw new Error(`the rig ${name} is being started by another process`);
  const keeper = await startKeeper(layout);
  let released = false;
  const end = async () => {
    if (!released) await tearDown(layout);
    keeper.release();
  };
  const release = () => {
    released = true;
    disown(layout);
    keeper.release();
  };
  try {
    for (const dir of [layout.logs, layout.podLogs]) mkdirSync(dir);
    await writeRegistryConfigs(layout, images, privatePassword);
    await createNetwork(layout, address);
    const holder = await startHolder(layout, name);
    const state = readState(layout);
    if (state) writeState(layout, { ...state, holder });
    const runtime = runtimeDaemons[provider];
    const daemons = createDaemons({ layout, tools, holder, runtime });
    runtime.writeConfig(layout);
    if (isRemote(provider)) await prepareSshd(layout);
    if (hasSystemd(provider)) await startMachine(layout, say);
    for (const which of runtime.registries)
      await daemons.start(`registry-${which}`, registryArgv(tools, layout, which));
    await daemons.startRuntime();
    if (isRemote(provider)) await daemons.startSshd();
    const host = hostInside(layout, holder);
    return { layout, tools, daemons, privatePassword, host, release, [Symbol.asyncDispose]: end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** sshd's own address is one of the rig's network, though no cable leads to it. */
async function prepareSshd(layout: Layout): Promise<void> {
  mkdirSync(layout.kubeletRoot);
  await createSshKeys(layout);
  if (!ownsKernel(layout))
    await must(networkArgv(layout, ["ip", "addr", "add", `${agentAddresses.target}/32`, "dev", "lo"]));
}

function hostInside(layout: Layout, holder: ProcessId): Host {
  const machine = localHost({ clock: systemClock() });
  const inside = (argv: readonly string[]) => targetArgv(layout, holder, argv);
  return {
    ...machine,
    run: (argv, options) => machine.run(argvOf(inside(argv)), options),
    spawn: (argv, signal) => machine.spawn(argvOf(inside(argv)), signal),
    dial: (to, signal) => ("unix" in to ? machine.dial(to, signal) : dialInside(layout, to)),
  };
}

/** The far end is socat in the rig's network: its standard input and output are the connection. */
async function dialInside(layout: Layout, { host, port }: Extract<Address, { host: string }>): Promise<Duplex> {
  const target = `TCP:${host.includes(":") ? `[${host}]` : host}:${port}`;
  const socat = start(networkArgv(layout, ["socat", "-", target]), { stdio: ["pipe", "pipe", "inherit"] });
  if (!socat.stdin || !socat.stdout) throw new Error("socat has no standard streams");
  const [near, far] = duplexPair();
  far.pipe(socat.stdin);
  socat.stdout.pipe(far);
  near.once("close", () => socat.kill());
  return near;
}
