import type { ChildProcess } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Kit, testKit } from "../cluster/tools/kits.ts";
import { agentAddresses } from "./agent-machine.ts";
import { createCgroup } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { addresses, insideArgv, networkArgv } from "./namespaces.ts";
import { runtimeDaemons } from "./runtime-daemon.ts";
import { cgroupsOf } from "./pod-machine.ts";
import { listProcesses, must, type ProcessId, start } from "./processes.ts";
import { type RuntimeRig, startRuntimeRig } from "./runtime-rig.ts";
import { hostKeyFile, loginKeyFile } from "./sshd.ts";
import { type Layout, readState } from "./state.ts";

/** Its own address, as its pods' hostIP has it. */
export const edgeAddress = "10.10.7.1";

/** A machine with sshd and containerd, which the pods of a cluster reach by a cable to the cluster's machine. */
export interface EdgeMachine extends RuntimeRig {
  /** What the provider's settings say of it beside the login: where it is, and how it is no real machine. */
  readonly ssh: Readonly<Record<string, unknown>>;
  readonly kubeletConfiguration: Readonly<Record<string, unknown>>;
  /** The private key and the known_hosts that let root in. */
  readonly login: Readonly<Record<"ssh-privatekey" | "known_hosts", string>>;
  /** Runs a command there as root. */
  mustInside(argv: readonly string[]): Promise<string>;
  /** Starts a command there as root. */
  startInside(argv: readonly string[]): ChildProcess;
  /** The processes of its pods: number and start of each. */
  podProcesses(): readonly string[];
  /** Pulls the cable, and puts it in again. */
  unplug(): Promise<void>;
  plug(): Promise<void>;
}

export interface EdgeMachineOptions {
  readonly kit?: Kit;
  /** Says its runtime: containerd unless given. */
  readonly provider?: "ssh" | "ssh-docker";
}

/** Starts it beside a cluster. Removed when disposed of or when this process ends. */
export async function startEdgeMachine(
  cluster: Cluster,
  name: string,
  { kit = testKit, provider = "ssh" }: EdgeMachineOptions = {},
): Promise<EdgeMachine> {
  await using undo = new AsyncDisposableStack();
  const rig = undo.use(await startRuntimeRig(name, provider, { address: edgeAddress, kit }));
  const { layout } = rig;
  createCgroup(layout);
  const holder = holderOf(rig);
  const { target, agent, prefix, sshPort } = agentAddresses;
  const inside = (argv: readonly string[]): Promise<string> => must(insideArgv(layout, holder, argv));
  const cable = (state: "up" | "down") => must(networkArgv(layout, ["ip", "link", "set", "home0", state]));
  await must([
    "nsenter",
    `--net=${layout.netns}`,
    "sh",
    "-ec",
    `ip link add home0 type veth peer name edge0 netns ${cluster.layout.netnsName}
     ip addr add ${target}/${prefix} dev home0
     ip addr del ${target}/32 dev lo
     ip link set home0 up`,
  ]);
  await must(
    networkArgv(cluster.layout, ["sh", "-ec", `ip addr add ${agent}/${prefix} dev edge0; ip link set edge0 up`]),
  );
  // Where Debian's packages have the socket: graftlet finds it there by itself.
  const usual = provider === "ssh" ? "/run/containerd/containerd.sock" : "/run/docker.sock";
  const socket = runtimeDaemons[provider].socket(layout);
  await inside(["sh", "-ec", `mkdir -p ${dirname(usual)}; ln -sf ${socket} ${usual}`]);
  const key = readFileSync(`${hostKeyFile(layout)}.pub`, "utf8")
    .trim()
    .split(" ")
    .slice(0, 2)
    .join(" ");
  const whole = undo.move();
  return {
    ...rig,
    ssh: { host: target, port: sshPort },
    kubeletConfiguration: {
      ...(provider === "ssh" && { cgroupRoot: layout.cgroup }),
      podLogsDir: layout.podLogs,
      failSwapOn: false,
      evictionHard: { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    },
    login: {
      "ssh-privatekey": readFileSync(loginKeyFile(layout), "utf8"),
      known_hosts: `[${target}]:${sshPort} ${key}\n`,
    },
    mustInside: inside,
    startInside: (argv) => start(insideArgv(layout, holder, argv)),
    podProcesses: () =>
      listProcesses()
        .filter(({ pid }) => cgroupsOf({ layout, root: "/" }, pid).some((path) => path.startsWith(`${layout.cgroup}/`)))
        .map(({ pid, startTicks }) => `${pid} ${startTicks}`)
        .toSorted(),
    unplug: async () => void (await cable("down")),
    plug: async () => void (await cable("up")),
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}

/** Gives the machine's pods addresses that no pod of the cluster has. Those that run keep theirs. */
export function ownPodAddresses({ containerd }: Pick<Layout, "containerd">): void {
  const network = join(containerd, "cni", "10-bridge.conflist");
  writeFileSync(network, readFileSync(network, "utf8").replace(addresses.cniPods, "10.88.0.0/24"));
}

function holderOf({ layout }: RuntimeRig): ProcessId {
  const holder = readState(layout)?.holder;
  if (!holder) throw new Error(`the machine ${layout.name} has no mount namespace`);
  return holder;
}
