import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import type { Cluster } from "./cluster.ts";
import { tailOf } from "./daemons.ts";
import { addresses } from "./namespaces.ts";
import { shellLine } from "../machines/guest-link.ts";
import { copyInLine, guestArgv, hasGuest } from "../machines/guest-way.ts";
import { identify, isAlive, type ProcessId, signalProcess, start } from "./processes.ts";
import type { Layout } from "./state.ts";
import { prepared } from "./prepared.ts";
import { cgroupDriverOf } from "../machines/systems.ts";
import { hasSystemd, isMachine, isRemote, type ProviderName, runtimeDaemons } from "./runtime-daemon.ts";
import { sshSettings } from "./sshd.ts";
import { Hopeless, waitFor } from "./wait.ts";

/** Node as the program's own first line has it: a small young generation keeps a stream's spent blocks from piling up, what is older
 *  is collected before it has doubled, and threads share what they have freed; for a MiB no threads are woken. */
export const nodeCommand: readonly string[] = [
  "env",
  "MALLOC_ARENA_MAX=2",
  process.execPath,
  "--max-semi-space-size=1",
  "--no-parallel-scavenge",
  "--heap-growing-percent=100",
];

const project = join(import.meta.dirname, "..", "..");

/** Settings by which a developer's machine is fit: its full disk is no reason to evict a test's pods or images. */
export const anyMachine = {
  evictionHard: {
    "memory.available": "100Mi",
    "nodefs.available": "1%",
    "nodefs.inodesFree": "1%",
    "imagefs.available": "1%",
  },
  imageGCHighThresholdPercent: 100,
  imageGCLowThresholdPercent: 99,
  failCgroupV1: false,
  failSwapOn: false,
} as const;

/** How an agent is started on a cluster's machine. */
export interface AgentOptions {
  /** The node's name; the cluster's unless given. */
  readonly nodeName?: string;
  /** Flags after the harness's own. */
  readonly args?: readonly string[];
  /** Fields of the KubeletConfiguration that differ from the harness's. */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly env?: Readonly<Record<string, string>>;
  /** A command that becomes the agent's, such as `setpriv` with its arguments. */
  readonly through?: readonly string[];
  /** Fields of the provider's own settings that differ from the harness's; a provider without a file of settings has none. */
  readonly providerConfig?: Readonly<Record<string, unknown>>;
  /** The socket on which the agent finds the container runtime; the runtime's own unless given. */
  readonly runtimeSocket?: string;
  /** Wait until the node is Ready; true unless given. */
  readonly untilReady?: boolean;
  /** The kubeconfig of the agent; one with the node's own identity unless given. */
  readonly kubeconfig?: string;
  /** Its root directory, as the machine sees it; the layout's unless given. */
  readonly rootDir?: string;
}

/** How graftlet is started. */
export interface GraftletOptions {
  /** True to run the one file of `make build`. */
  readonly built?: boolean;
  /** The command that runs Node; `nodeCommand` unless given. */
  readonly node?: readonly string[];
}

/** A running agent: graftlet or the reference kubelet. Disposing it kills it; its pods live on. */
export interface Agent extends AsyncDisposable {
  readonly nodeName: string;
  readonly pid: number;
  readonly logFile: string;
  readonly rootDir: string;
  /** All that it has logged so far. */
  log(): string;
  isRunning(): boolean;
  /** Its end: the exit code, or null with the signal that killed it. */
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  /** Sends a signal and waits for the end. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** SIGTERM; SIGKILL when it has not ended after `graceMs` (20 s unless given). Returns whether it ended by itself. */
  stop(graceMs?: number): Promise<boolean>;
  /** Sends a signal and returns at once (SIGSTOP, SIGCONT, SIGHUP). */
  signal(signal: NodeJS.Signals): void;
}

/** Starts the real kubelet: the reference that graftlet is compared with. The cluster's runtime is containerd: a kubelet speaks
 *  CRI alone. In a guest it outlives this process, and ends with the guest. */
export function startKubelet(cluster: Cluster, options: AgentOptions = {}): Promise<Agent> {
  const { nodeAddress: address, layout, spawnInside, tools } = cluster;
  const command = [tools.path("kubelet")];
  const spawn = hasGuest(layout) ? spawnWithFiles(layout, [...command, join(layout.pki, "ca.crt")]) : spawnInside;
  return startAgent(cluster, { program: "kubelet", command, address, spawn }, options);
}

/** Runs a command in the guest, which is given these files before, and those that the command's flags name. */
function spawnWithFiles(layout: Layout, files: readonly string[]): Cluster["spawnInside"] {
  return (argv, options) => {
    const named = argv.flatMap((flag) => /^--(?:kube)?config=(.+)$/.exec(flag)?.[1] ?? []);
    const script = `${copyInLine(layout, [...files, ...named])}; exec ${shellLine(guestArgv(layout, argv))}`;
    return start(["sh", "-ec", script], options);
  };
}

/** Starts graftlet with the kubelet's command line: as `graftletCommand` runs it. */
export function startGraftlet(
  cluster: Cluster,
  { built = false, node = nodeCommand, ...options }: AgentOptions & GraftletOptions = {},
): Promise<Agent> {
  const command = [...node, graftletFile({ built }), ...providerArgs(cluster, options)];
  const { agentAddress: address, spawnAtAgent: spawn } = cluster;
  return startAgent(cluster, { program: "graftlet", command, address, spawn }, options);
}

/** The command that runs graftlet, without its flags: the one file of `make build` where `built` is true, else what this run of
 *  tests has made of the source, or the source. @throws when it is to be the built file and that is missing. */
export function graftletCommand({ built }: { readonly built: boolean }): readonly string[] {
  return [...nodeCommand, graftletFile({ built })];
}

function graftletFile({ built }: { readonly built: boolean }): string {
  const file = built ? join(project, "dist/graftlet.mjs") : graftletProgram();
  if (!existsSync(file)) throw new Error(`${file} is missing${built ? ': run "npm run build" first' : ""}`);
  return file;
}

/** Graftlet's first file: in one with all others, as it is shipped, where a run of tests has made that, or of the source. */
export function graftletProgram(): string {
  return prepared()?.graftlet ?? join(project, "src", "main.ts");
}

/** Starts graftlet on the agent's machine with no flags but these, and waits for nothing.
 *  @param name of its log.
 *  @param program its first file, from the project's folder; graftlet's own unless given. */
export async function startGraftletWith(
  cluster: Pick<Cluster, "layout" | "spawnAtAgent">,
  name: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  program?: string,
): Promise<Agent> {
  const argv = [...nodeCommand, program === undefined ? graftletProgram() : join(project, program), ...args];
  const logFile = join(cluster.layout.logs, `graftlet-${name}.log`);
  const spawned = await spawnAgent(cluster.spawnAtAgent, argv, logFile, env);
  return agentOf(cluster.layout.kubeletRoot, name, spawned, logFile);
}

/** A kubelet's command line names a CRI runtime; another provider's is named in the provider's own file. */
function providerArgs(cluster: Cluster, options: AgentOptions): string[] {
  const { layout, provider } = cluster;
  if (provider === "cri") return [];
  const { nodeName = cluster.nodeName, runtimeSocket = cluster.runtimeSocket } = options;
  const file = join(layout.dir, `${provider}-${nodeName}.yaml`);
  const remote = isRemote(provider);
  const settings = remote
    ? sshSettings(layout, provider, runtimeSocket)
    : { socket: `unix://${runtimeSocket}`, podCIDR: addresses.pods };
  writeFileSync(file, stringify({ ...settings, ...options.providerConfig }));
  return [`--provider=${remote ? "ssh" : provider}`, `--provider-config=${file}`];
}

/** Environment of an agent that does every three seconds what others do every five minutes. */
export const hastyRounds = pacedRounds(300_000, 3_000);

/** Environment of an agent that collects ended containers every two seconds, not every minute. */
export const hastyGarbage = pacedRounds(60_000, 2_000);

/** Environment of an agent that does every two minutes what others do every ten seconds. */
export const rareRounds = pacedRounds(10_000, 120_000);

function pacedRounds(fromMs: number, toMs: number): Readonly<Record<string, string>> {
  return {
    NODE_OPTIONS: `--import=${join(import.meta.dirname, "paced-rounds.ts")}`,
    GRAFTLET_TEST_PAUSES: `${fromMs} ${toMs}`,
  };
}

/** Waits until a node is Ready in the API server's eyes. */
export async function nodeReady(cluster: Cluster, nodeName: string, timeoutMs = 60_000): Promise<void> {
  await waitFor(`node ${nodeName} to be Ready`, async () => (await readyStatus(cluster, nodeName)) === "True", {
    timeoutMs,
    everyMs: 200,
    explain: async () => (await cluster.kubectl(["describe", "node", nodeName])).stdout,
  });
}

/** The KubeletConfiguration that fits the cluster's machine. @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ */
export function kubeletConfiguration(
  { layout, provider, runtimeSocket: own }: Cluster,
  runtimeSocket = own,
): Record<string, unknown> {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: join(layout.pki, "ca.crt") },
    },
    authorization: { mode: "Webhook" },
    ...cgroupsOf(layout, provider),
    clusterDNS: [addresses.dns],
    clusterDomain: "cluster.local",
    ...(runtimeDaemons[provider].role === "containerd" && { containerRuntimeEndpoint: `unix://${runtimeSocket}` }),
    enforceNodeAllocatable: ["pods"],
    ...anyMachine,
    podLogsDir: layout.podLogs,
    resolvConf: layout.resolvConf,
    staticPodPath: layout.staticPods,
    volumePluginDir: join(layout.dir, "volume-plugins"),
  };
}

/** Who makes the cgroups of pods, and where: below the machine's root where it has one of its own. */
function cgroupsOf(layout: Layout, provider: ProviderName): Record<string, unknown> {
  if (isMachine(provider)) return { cgroupDriver: cgroupDriverOf(layout) };
  return hasSystemd(provider) ? { cgroupDriver: "systemd" } : { cgroupDriver: "cgroupfs", cgroupRoot: layout.cgroup };
}

/** An agent's program, and the machine that it is started on. */
interface Program {
  readonly program: string;
  readonly command: readonly string[];
  /** That of the machine. */
  readonly address: string;
  readonly spawn: Cluster["spawnInside"];
}

async function startAgent(
  cluster: Cluster,
  { program, command, address, spawn }: Program,
  options: AgentOptions,
): Promise<Agent> {
  const { layout } = cluster;
  const { nodeName = cluster.nodeName, untilReady = true, rootDir = layout.kubeletRoot } = options;
  const config = join(layout.dir, `${program}-${nodeName}.yaml`);
  writeFileSync(config, stringify({ ...kubeletConfiguration(cluster, options.runtimeSocket), ...options.config }));
  const kubeconfig = options.kubeconfig ?? (await cluster.kubeconfigFor(nodeName));
  const argv = [
    ...(options.through ?? []),
    ...command,
    `--config=${config}`,
    `--kubeconfig=${kubeconfig}`,
    `--hostname-override=${nodeName}`,
    `--root-dir=${rootDir}`,
    `--node-ip=${address}`,
    ...(options.args ?? []),
  ];
  const logFile = join(layout.logs, `${program}-${nodeName}.log`);
  const spawned = await spawnAgent(spawn, argv, logFile, options.env);
  const agent = agentOf(rootDir, nodeName, spawned, logFile);
  if (!untilReady) return agent;
  try {
    await waitFor(
      `${program} to make node ${nodeName} Ready`,
      async () => {
        if (!agent.isRunning()) throw new Hopeless(`${program} ended at its start:\n${tailOf(logFile, 20)}`);
        return (await readyStatus(cluster, nodeName)) === "True";
      },
      { timeoutMs: 120_000, everyMs: 200, explain: () => tailOf(logFile, 20) },
    );
    return agent;
  } catch (error) {
    await agent.kill("SIGKILL");
    throw error;
  }
}

interface Spawned extends Pick<Agent, "ended"> {
  readonly id: ProcessId;
}

async function spawnAgent(
  spawn: Program["spawn"],
  argv: readonly string[],
  logFile: string,
  env: AgentOptions["env"],
): Promise<Spawned> {
  const log = openSync(logFile, "a");
  // The effects of a cache of compiled code on start and memory are not graftlet's.
  const own = { NODE_DISABLE_COMPILE_CACHE: "1", ...env };
  const child = spawn(argv, { stdio: ["ignore", log, log], detached: true, env: own });
  closeSync(log);
  await new Promise<void>((resolve, reject) => {
    child.once("spawn", resolve);
    child.once("error", reject);
  });
  const ended: Agent["ended"] = new Promise((resolve) =>
    child.once("exit", (code, signal) => resolve({ code, signal })),
  );
  child.unref();
  const id = child.pid === undefined ? undefined : identify(child.pid);
  if (!id) throw new Error(`${argv.join(" ")} ended at once:\n${tailOf(logFile, 20)}`);
  return { id, ended };
}

function agentOf(rootDir: string, nodeName: string, { id, ended }: Spawned, logFile: string): Agent {
  const gone = (timeoutMs: number): Promise<true> =>
    waitFor(`the end of process ${id.pid}`, () => !isAlive(id), { timeoutMs, everyMs: 20 });
  const kill = async (signal: NodeJS.Signals): Promise<void> => {
    if (signalProcess(id, signal)) await gone(20_000);
  };
  return {
    nodeName,
    pid: id.pid,
    logFile,
    rootDir,
    kill,
    log: () => readFileSync(logFile, "utf8"),
    isRunning: () => isAlive(id),
    ended,
    signal: (signal) => void signalProcess(id, signal),
    async stop(graceMs = 20_000) {
      signalProcess(id, "SIGTERM");
      const byItself = await gone(graceMs).catch(() => false);
      if (!byItself) await kill("SIGKILL");
      return byItself;
    },
    [Symbol.asyncDispose]: () => kill("SIGKILL"),
  };
}

/** The status of a node's Ready condition; `undefined` while there is no node. */
async function readyStatus(cluster: Cluster, nodeName: string): Promise<string | undefined> {
  const node = await cluster.get<{ status?: { conditions?: { type: string; status: string }[] } }>("node", nodeName);
  return node?.status?.conditions?.find((condition) => condition.type === "Ready")?.status;
}
