import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentAddresses } from "./agent-machine.ts";
import { type Agent, type AgentOptions, startGraftlet, startKubelet } from "./agent.ts";
import type { Cluster } from "./cluster.ts";
import { startCriProxy } from "./cri-proxy.ts";
import { startDockerProxy } from "./docker-proxy.ts";
import { holdings } from "./holdings.ts";
import { addresses, networkArgv } from "./namespaces.ts";
import { inodeOf, listProcesses, must, run } from "./processes.ts";
import type { ProviderName } from "./runtime-daemon.ts";
import { sshdProcesses } from "./sshd.ts";
import type { Moment, RuntimeProxy } from "./runtime-proxy.ts";
import { whole } from "../matrix.ts";

/** What tests must know of the provider under test, because users see it or because it is the runtime's own way. */
export interface Particulars {
  /** The runtime in container IDs and in the node's containerRuntimeVersion. */
  readonly runtimeName: string;
  /** A line of a container's log file: which stream it was written to, and what. */
  logLine(stream: "stdout" | "stderr", text: string): RegExp;
  /** What is held open, as `holdings` shows it, by the agent or for it. */
  holdings(cluster: Cluster, agent: Agent): Set<string>;
  /** What of it is for a log that is read, and for a stream that passes through the agent. */
  readonly held: { readonly log: RegExp; readonly stream: RegExp };
  /** Of what is held for streams, as many lines may come and stay: a connection that the node's own questions to the runtime use
   *  again and again. */
  readonly ownLines: number;
  /** Another agent that can use the runtime: the kubelet where it can, to tell the harness's faults from graftlet's. */
  startReference(cluster: Cluster, options?: AgentOptions): Promise<Agent>;
  startProxy(cluster: Cluster): Promise<RuntimeProxy>;
  /** The calls by which a pod is made and ended, in their order. */
  readonly moments: Readonly<Record<"start" | "end", readonly Moment[]>>;
  /** Conditions that only this provider's nodes have: `TYPE STATUS REASON`. */
  readonly ownConditions: readonly string[];
  /** How much is sent through graftlet, and how much more memory that may take than a short transfer, MiB. */
  readonly transfer: { readonly amount: number; readonly allowance: number };
  /** The reason of a container that could not be started. */
  readonly startFailure: string;
  /** Takes the pods' network away, so that the runtime knows at the next pod at the latest. @returns what gives it back. */
  loseNetwork(cluster: Cluster): Promise<() => Promise<void>>;
  /** The capabilities that the runtime knows, of which a privileged container gets those of the machine. */
  knownCapabilities(cluster: Cluster): Promise<bigint>;
  /** Whether the runtime, started again, knows how a container ended while it was away. */
  remembersEnds(cluster: Cluster): boolean;
  /** Gives an image that the runtime has another name. */
  tagImage(cluster: Cluster, image: string, name: string): Promise<void>;
}

/** MiB: each several times the allowance, so that what grows with the amount is seen. A GiB in the full matrix. */
const amounts = whole ? { one: 1024, other: 256 } : { one: 256, other: 128 };

const onContainerd: Particulars = {
  holdings: (_, agent) => holdings(agent.pid),
  runtimeName: "containerd",
  // https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
  logLine: (stream, text) =>
    new RegExp(`^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d+(Z|[+-]\\d\\d:\\d\\d) ${stream} F ${text}$`),
  // The runtime serves streams at a port of its own.
  held: { log: /\/0\.log/, stream: /(?<!:10250) -> / },
  ownLines: 0,
  startReference: startKubelet,
  startProxy: (cluster) => startCriProxy(proxySockets(cluster)),
  moments: {
    start: [
      "before RunPodSandbox",
      "during RunPodSandbox",
      "after RunPodSandbox",
      "before PullImage",
      "during CreateContainer",
      "after CreateContainer",
      "after StartContainer",
    ],
    end: [
      "before StopContainer",
      "during StopContainer",
      "after StopContainer",
      "before StopPodSandbox",
      "after StopPodSandbox",
      "before RemoveContainer",
      "after RemovePodSandbox",
    ],
  },
  ownConditions: [],
  // What a CRI runtime serves over TCP settles later than what is served in process.
  transfer: { amount: amounts.one, allowance: 32 },
  startFailure: "StartError",
  loseNetwork({ layout }) {
    const config = join(layout.containerd, "cni", "10-bridge.conflist");
    const network = readFileSync(config);
    rmSync(config);
    return Promise.resolve(() => Promise.resolve(writeFileSync(config, network)));
  },
  // Those of the kernel.
  knownCapabilities: () => Promise.resolve(-1n),
  // Version 2 removes what has no process any more, exit code and all ("cleaning leaked shim process", core/runtime/v2).
  remembersEnds: ({ containerd }) => containerd === "1.6",
  tagImage: async ({ runtimeSocket, tools }, image, name) =>
    void (await must([
      tools.path("ctr"),
      "--address",
      runtimeSocket,
      "--namespace",
      "k8s.io",
      "images",
      "tag",
      image,
      name,
    ])),
};

const onDocker: Particulars = {
  holdings: (_, agent) => holdings(agent.pid),
  runtimeName: "docker",
  // https://docs.docker.com/engine/logging/drivers/json-file/
  logLine: (stream, text) => new RegExp(`^\\{"log":"${text}\\\\n","stream":"${stream}","time":"[^"]+"\\}$`),
  // Streams pass through the daemon's socket, or a relay's pipes, which have no addresses.
  held: { log: /-json\.log/, stream: /socket:\[\d+\] $/ },
  ownLines: 1,
  startReference: startGraftlet,
  startProxy: (cluster) => startDockerProxy(proxySockets(cluster)),
  moments: {
    start: [
      "before CreateSandbox",
      "during CreateSandbox",
      "after CreateSandbox",
      "during StartSandbox",
      "after StartSandbox",
      "before PullImage",
      "during CreateContainer",
      "after CreateContainer",
      "after StartContainer",
    ],
    end: [
      "before StopContainer",
      "during StopContainer",
      "after StopContainer",
      "before StopSandbox",
      "after StopSandbox",
      "before RemoveContainer",
      "after RemoveSandbox",
    ],
  },
  ownConditions: [],
  transfer: { amount: amounts.other, allowance: 8 },
  // https://github.com/Mirantis/cri-dockerd names it so.
  startFailure: "ContainerCannotRun",
  async loseNetwork(cluster) {
    await run(dockerArgv(cluster, ["network", "rm", `graftlet-${cluster.nodeName}`]));
    // Somebody else has the pods' addresses: there is no making it again.
    await must(dockerArgv(cluster, ["network", "create", `--subnet=${addresses.pods}`, "taken"]));
    return async () => void (await must(dockerArgv(cluster, ["network", "rm", "taken"])));
  },
  // None newer than CAP_AUDIT_READ (37), in Docker 20.10.
  async knownCapabilities(cluster) {
    const version = await must(dockerArgv(cluster, ["version", "--format", "{{.Server.Version}}"]));
    return version.startsWith("20.10.") ? (1n << 38n) - 1n : -1n;
  },
  remembersEnds: () => true,
  tagImage: async (cluster, image, name) => void (await must(dockerArgv(cluster, ["image", "tag", image, name]))),
};

const heldOverSsh = { log: /\/0\.log/, stream: /(?<!:10250|:2222) -> (?!:2222\b)/ };
// A relay that enters a pod for port-forward is a command of a session, the other streams are connections to the daemon.
const heldOverSshOnDocker = { log: /-json\.log/, stream: /^(dockerd|relay) / };

/** On any target over SSH. */
const overSsh = {
  // What graftlet's login may do there is found out.
  ownConditions: ["TargetPrivileges True SufficientPrivileges"],
};

const overSshOnContainerd: Particulars = {
  ...onContainerd,
  holdings: (cluster, agent) => new Set([...heldHere(agent), ...heldBySshd(cluster, heldOverSsh)]),
  held: heldOverSsh,
  ownConditions: overSsh.ownConditions,
  transfer: { ...onContainerd.transfer, amount: amounts.other },
};

const overSshOnDocker: Particulars = {
  ...onDocker,
  holdings: (cluster, agent) =>
    new Set([...heldHere(agent), ...heldBySshd(cluster, heldOverSshOnDocker), ...heldByDockerd(cluster)]),
  held: heldOverSshOnDocker,
  // Of one connection sshd's end and dockerd's.
  ownLines: 2,
  ownConditions: overSsh.ownConditions,
  // What was decrypted is spent blocks outside the heap, which the engine collects later than its own.
  transfer: { ...onContainerd.transfer, amount: amounts.other },
};

export const particulars: Readonly<Record<ProviderName, Particulars>> = {
  cri: onContainerd,
  docker: onDocker,
  ssh: overSshOnContainerd,
  "ssh-systemd": overSshOnContainerd,
  "ssh-guest": overSshOnContainerd,
  "ssh-docker": overSshOnDocker,
  "ssh-docker-systemd": overSshOnDocker,
  "ssh-docker-guest": overSshOnDocker,
};

/** How many connections the link is made of is its own business. */
function heldHere({ pid }: Agent): string[] {
  return [...holdings(pid)].filter((line) => !line.endsWith(` -> :${agentAddresses.sshPort}`));
}

/** Each stream and each log within the link ends at the target's sshd, or at a command that it runs. */
function heldBySshd({ layout }: Cluster, { log, stream }: Particulars["held"]): string[] {
  const sshd = new Set(sshdProcesses(layout).map(({ pid }) => pid));
  const machine = inodeOf(layout.netns);
  const inPods = listProcesses().filter(({ parent, netns }) => sshd.has(parent) && netns !== machine);
  const lines = [
    ...[...sshd].flatMap((pid) => [...holdings(pid)].map((line) => `sshd ${pid}: ${line}`)),
    ...inPods.map(({ pid }) => `relay ${pid}`),
  ];
  // How many sessions stand ready for the next command is the link's own business too.
  return lines.filter((line) => log.test(line) || stream.test(line));
}

/** The connections to the daemon, whoever has made them. One whose other end is gone is the daemon's own affair: it forgets to
 *  close those of execs (CloseStreams in api/server/httputils/httputils.go), until its memory is collected. */
function heldByDockerd({ layout, runtimeSocket }: Cluster): string[] {
  const [program = "", ...args] = networkArgv(layout, ["ss", "--no-header", "--unix", "state", "established"]);
  return execFileSync(program, args, { encoding: "utf8" })
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .flatMap(([, , , path, inode, , peer]) => (path === runtimeSocket && peer !== "0" ? [`dockerd ${inode}`] : []));
}

function dockerArgv({ runtimeSocket }: Cluster, args: readonly string[]): string[] {
  return ["docker", "--host", `unix://${runtimeSocket}`, ...args];
}

function proxySockets({ layout, runtimeSocket }: Cluster): { readonly socket: string; readonly upstream: string } {
  return { socket: join(layout.dir, "proxy.sock"), upstream: runtimeSocket };
}
