import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { buildImages } from "../cluster/images/build.ts";
import { type ImageReference, openRegistryStore } from "../cluster/images/registry-store.ts";
import { privateImageName } from "../cluster/images/catalog.ts";
import { type Kit, testKit } from "../cluster/tools/kits.ts";
import { agentAddresses, agentMachineArgv } from "./agent-machine.ts";
import { bringUp } from "./bring-up.ts";
import { type ContainerdVersion, containerdUnderTest } from "./containerd-version.ts";
import { createDaemons, type Daemons } from "./daemons.ts";
import { dockerUnderTest } from "./docker-version.ts";
import { startKeeper } from "./keeping.ts";
import { apiServerUrl, auditGroup } from "./control-plane.ts";
import { type Kubectl, kubectlOf } from "./kubectl.ts";
import { writeNodeKubeconfig } from "./kubeconfig.ts";
import { guestRoot, hasGuest } from "../machines/guest-way.ts";
import { machineOf, targetArgv } from "../machines/enter.ts";
import { machineUnderTest } from "../machines/systems.ts";
import { addresses, privateRegistryHost } from "./namespaces.ts";
import { type Finished, must, type ProcessId, run, type RunOptions, start, type StartOptions } from "./processes.ts";
import { privateUser } from "./registry.ts";
import { prepared } from "./prepared.ts";
import { guestUnderTest } from "../machines/guest-systems.ts";
import { isGuest } from "../matrix.ts";
import { isMachine, isRemote, providerUnderTest, runtimeDaemons, type ProviderName } from "./runtime-daemon.ts";
import {
  disown,
  type GuestSizes,
  isHeld,
  layoutOf,
  type Layout,
  type MachineSystem,
  readState,
  takeLease,
} from "./state.ts";
import { tearDown } from "./teardown.ts";
import { findTools, type Tools } from "./tools.ts";
import { waitFor, type WaitOptions, type Polled } from "./wait.ts";

/** What a cluster is asked to be. */
export interface ClusterOptions {
  /** Tells clusters of one machine apart: at most 24 lower-case letters, digits and dashes. A provider other than cri is
   *  appended. */
  readonly name: string;
  /** The node that its one machine is meant to become; `node-1` unless given. */
  readonly nodeName?: string;
  /** What its machine runs pods with; the provider under test unless given. */
  readonly provider?: ProviderName;
  /** The version of its containerd, where the provider works with one; the one under test unless given. */
  readonly containerd?: ContainerdVersion;
  /** Images that its registries serve beside those of the catalog. */
  readonly images?: readonly ServedImage[];
  /** What a target with a kernel of its own is given; `guestSizes` unless given. */
  readonly guest?: Partial<GuestSizes>;
  /** A group of users of which the API server writes down what they ask, into `auditLog`: `system:nodes` … */
  readonly audited?: string;
  /** The system of a target with a systemd, and its SSH server; those under test unless given. */
  readonly machine?: MachineSystem;
  /** The programs and images that it is brought up with; all that tests use unless given. */
  readonly kit?: Kit;
  /** Progress in sentences; nobody hears them unless given. */
  readonly say?: (line: string) => void;
}

/** An archive of `docker save`, and where a registry serves it. */
export interface ServedImage extends ImageReference {
  readonly archive: string;
}

/** A user of a registry. */
export interface Credentials {
  readonly server: string;
  readonly username: string;
  readonly password: string;
}

/** A running cluster: a control plane, a proxy, registries and a container runtime that waits for an agent. */
export interface Cluster extends Kubectl, AsyncDisposable {
  readonly name: string;
  readonly nodeName: string;
  /** Where the pods' machine is: their hostIP. */
  readonly nodeAddress: string;
  /** Where the agent's machine is: the node's InternalIP. The same, but for a provider with SSH. */
  readonly agentAddress: string;
  readonly layout: Layout;
  readonly tools: Tools;
  /** The path of its network namespace. */
  readonly ns: string;
  /** Its files as its own programs see them, mounts included: `join(cluster.root, path)` can be read from outside. */
  readonly root: string;
  readonly adminKubeconfig: string;
  readonly provider: ProviderName;
  readonly containerd: ContainerdVersion;
  readonly runtimeSocket: string;
  /** An image that is pulled with `privateCredentials` only. */
  readonly privateImage: string;
  readonly privateCredentials: Credentials;
  /** A kubeconfig with the identity `system:node:NAME`. */
  kubeconfigFor(nodeName: string): Promise<string>;
  /** Starts a program inside: the cluster's network, mounts and files. Its pid is the child's. */
  spawnInside(argv: readonly string[], options?: StartOptions): ChildProcess;
  /** Runs a program inside to its end. */
  runInside(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** Runs a program inside that must succeed. @returns its standard output. @throws with its standard error. */
  mustRunInside(argv: readonly string[]): Promise<string>;
  /** Starts a program inside that ends with the cluster; its log is that of a daemon called so. */
  startDaemon(role: string, argv: readonly string[]): Promise<ProcessId>;
  /** Starts a program on the agent's machine: inside, or for a provider with SSH where nothing of the target is seen. */
  spawnAtAgent(argv: readonly string[], options?: StartOptions): ChildProcess;
  /** Runs a program on the agent's machine to its end. */
  runAtAgent(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  waitFor<T>(
    description: string,
    poll: () => Promise<Polled<T>> | Polled<T>,
    options?: WaitOptions | number,
  ): Promise<T>;
  /** Kills the API server, and starts it again until it is ready. */
  stopApiServer(): Promise<void>;
  startApiServer(): Promise<void>;
  /** Asks etcd to end, and waits until it has. */
  stopEtcd(): Promise<void>;
  /** Kills the container runtime alone (its shims and pods live on), and starts it again until it answers. */
  killRuntime(): Promise<void>;
  startRuntime(): Promise<void>;
  /** Sends the container runtime a signal and returns at once (SIGSTOP, SIGCONT). */
  signalRuntime(signal: NodeJS.Signals): void;
  /** Starts the sshd of a cluster with a provider with SSH, with lines put before its configuration; kills it with every
   *  connection of it. */
  startSshd(lines?: readonly string[]): Promise<void>;
  killSshd(): Promise<void>;
  /** The end of a daemon's log: `kube-apiserver`, `containerd`, `dockerd` … */
  logTail(daemon: string, lines?: number): string;
  /** Lets the cluster outlive this process: disposing it, or dying, does nothing any more. */
  release(): void;
}

/**
 * Brings a cluster up in namespaces of its own. It ends when it is disposed or when this process ends,
 * however it ends. Throws when the name is in use; a cluster that a crash left under the name is removed first.
 */
export async function startCluster(options: ClusterOptions): Promise<Cluster> {
  const { nodeName = "node-1", provider = providerUnderTest(), say = () => {} } = options;
  const { containerd = containerdUnderTest(), kit = testKit } = options;
  const docker = dockerUnderTest(provider);
  const layout = layoutOf(clusterName(options.name, provider, containerd));
  const tools = await findTools(say, containerd, kit, docker);
  const catalog = (kit === testKit && prepared()?.images) || (await buildImages(tools, say, kit.images));
  await lease(layout, {
    nodeName,
    provider,
    containerd,
    docker,
    privatePassword: randomBytes(9).toString("base64url"),
    ...(isGuest(provider) && { guestSizes: { ...guestUnderTest(), ...options.guest } }),
    ...(isMachine(provider) && { machineSystem: options.machine ?? machineUnderTest() }),
  });
  const keeper = await startKeeper(layout);
  try {
    if (options.audited) auditGroup(layout, options.audited);
    const images = options.images ? await storeWith(options.images, catalog, layout) : catalog;
    const holder = await bringUp({ layout, tools, images, say });
    const end = async (): Promise<void> => {
      await tearDown(layout);
      keeper.release();
    };
    return clusterOf({
      layout,
      tools,
      holder,
      end,
      release: () => {
        disown(layout);
        keeper.release();
      },
    });
  } catch (error) {
    await tearDown(layout);
    keeper.release();
    throw error;
  }
}

/** The name of a cluster with that provider: clusters of all providers and versions of containerd stand side by side, and those
 *  of several checkouts where each has a `GRAFTLET_TEST_MARK` of its own, a few letters. */
export function clusterName(
  name: string,
  provider: ProviderName = providerUnderTest(),
  containerd: ContainerdVersion = containerdUnderTest(),
): string {
  const mark = process.env.GRAFTLET_TEST_MARK;
  const runtime = `${provider === "cri" ? "" : `-${provider}`}${containerd === "1.6" ? "" : `-${containerd.replace(".", "")}`}`;
  return `${mark ? `${mark}-` : ""}${name}${runtime}`;
}

/** A cluster that is up, started by another process; disposing it does nothing. Throws when there is none. */
export async function openCluster(name: string): Promise<Cluster> {
  const layout = layoutOf(name);
  const { holder, containerd, docker } = readState(layout) ?? {};
  if (!holder || !isHeld(layout))
    throw new Error(`no cluster ${name} is up: start it with "node test/cluster/cluster.ts up --name ${name}"`);
  const tools = await findTools(() => {}, containerd, { programs: [], images: [] }, docker);
  return clusterOf({ layout, tools, holder, end: async () => {}, release: () => {} });
}

/** The catalog's store with further images, below the cluster's folder. */
async function storeWith(images: readonly ServedImage[], catalog: string, layout: Layout): Promise<string> {
  const store = join(layout.dir, "images");
  await must(["cp", "--archive", "--symbolic-link", catalog, store]);
  for (const image of images) await openRegistryStore(store).addArchive(image, image.archive);
  return store;
}

async function lease(layout: Layout, first: Parameters<typeof takeLease>[1]): Promise<void> {
  if (takeLease(layout, first)) return;
  if (isHeld(layout))
    throw new Error(
      `a cluster ${layout.name} is up already: remove it with "node test/cluster/cluster.ts down --name ${layout.name}", or choose another name`,
    );
  await tearDown(layout);
  if (!takeLease(layout, first)) throw new Error(`a cluster ${layout.name} is being started by another process`);
}

interface Parts {
  readonly layout: Layout;
  readonly tools: Tools;
  readonly holder: ProcessId;
  readonly end: () => Promise<void>;
  readonly release: () => void;
}

function clusterOf({ layout, tools, holder, end, release }: Parts): Cluster {
  const state = readState(layout);
  if (!state) throw new Error(`the state of cluster ${layout.name} cannot be read: ${layout.stateFile}`);
  const runtime = runtimeDaemons[state.provider];
  const daemons: Daemons = createDaemons({ layout, tools, holder, runtime });
  const remote = isRemote(state.provider);
  const atAgent = (argv: readonly string[], cwd?: string) =>
    remote ? agentMachineArgv(layout, argv, cwd) : targetArgv(layout, holder, argv, cwd);
  let released = false;
  const server = `${privateRegistryHost}:${addresses.privateRegistryPort}`;
  return {
    name: layout.name,
    nodeName: state.nodeName,
    nodeAddress: isGuest(state.provider) ? addresses.guest : addresses.node,
    agentAddress: remote ? agentAddresses.agent : addresses.node,
    layout,
    tools,
    ns: layout.netns,
    get root() {
      return hasGuest(layout) ? guestRoot(layout) : `/proc/${(machineOf(layout) ?? holder).pid}/root`;
    },
    adminKubeconfig: join(layout.dir, "admin.kubeconfig"),
    provider: state.provider,
    containerd: state.containerd,
    runtimeSocket: runtime.socket(layout),
    privateImage: `${server}/${privateImageName}`,
    privateCredentials: { server, username: privateUser, password: state.privatePassword },
    ...kubectlOf(layout, tools),
    kubeconfigFor: (nodeName) => writeNodeKubeconfig(layout, apiServerUrl, nodeName),
    spawnInside: (argv, options = {}) => start(targetArgv(layout, holder, argv, options.cwd), { ...options, cwd: "/" }),
    runInside: (argv, options = {}) => run(targetArgv(layout, holder, argv, options.cwd), { ...options, cwd: "/" }),
    mustRunInside: (argv) => must(targetArgv(layout, holder, argv), { cwd: "/" }),
    startDaemon: (role, argv) => daemons.start(role, argv),
    spawnAtAgent: (argv, options = {}) => start(atAgent(argv, options.cwd), { ...options, cwd: "/" }),
    runAtAgent: (argv, options = {}) => run(atAgent(argv, options.cwd), { ...options, cwd: "/" }),
    waitFor,
    stopApiServer: () => daemons.kill("kube-apiserver"),
    startApiServer: () => daemons.startApiServer(),
    stopEtcd: () => daemons.stop("etcd"),
    killRuntime: () => daemons.kill(runtime.role),
    startRuntime: () => daemons.startRuntime(),
    signalRuntime: (signal) => daemons.signal(runtime.role, signal),
    startSshd: (lines) => daemons.startSshd(lines),
    killSshd: () => daemons.killSshd(),
    logTail: (daemon, lines = 20) => daemons.logTail(daemon, lines),
    release: () => {
      released = true;
      release();
    },
    [Symbol.asyncDispose]: async () => {
      if (!released) await end();
      released = true;
    },
  };
}
