import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cgroupHierarchies } from "./cgroups.ts";
import { noNameServer } from "./namespaces.ts";
import { must, run } from "./processes.ts";
import type { Layout } from "./state.ts";

/** The cable between the agent's machine and its target, the cluster's machine. */
export const agentAddresses = { target: "10.10.9.1", agent: "10.10.9.2", prefix: 24, sshPort: 2222 } as const;

/** The agent's end of the cable. */
const agentLink = "target0";

const hostname = "graftlet-home";

/** Makes what the agent's machine is made of: a network with a cable to the cluster's machine, by which the API server is reached
 *  as well, and names for both. */
export async function createAgentMachine(layout: Layout, nodeName: string): Promise<void> {
  const { target, agent, prefix } = agentAddresses;
  mkdirSync(filesFolder(layout));
  const names = `127.0.0.1 localhost\n${agent} ${hostname} ${nodeName}\n${target} target\n`;
  writeFileSync(join(filesFolder(layout), "hosts"), names);
  writeFileSync(join(filesFolder(layout), "resolv.conf"), noNameServer);
  await must(["ip", "netns", "add", layout.agentNetnsName]);
  const there = `
    ip link add agent0 type veth peer name ${agentLink} netns ${layout.agentNetnsName}
    ip addr add ${target}/${prefix} dev agent0
    ip link set agent0 up`;
  const here = `
    ip link set lo up
    ip addr add ${agent}/${prefix} dev ${agentLink}
    ip link set ${agentLink} up
    ip route add default via ${target}`;
  await must(["nsenter", `--net=${layout.netns}`, "sh", "-ec", there]);
  await must(["nsenter", `--net=${layout.agentNetns}`, "sh", "-ec", here]);
}

/** A further machine like the agent's, with the same files and a network of its own, until it is disposed. @param index from 1. */
export async function createFurtherMachine(layout: Layout, index: number) {
  const name = `${layout.agentNetnsName}-${index}`;
  const [there, address] = [1, 2].map((host) => `10.10.${10 + index}.${host}`);
  const netns = `/run/netns/${name}`;
  // An interrupted run may have left it.
  await run(["ip", "netns", "del", name]);
  await must(["ip", "netns", "add", name]);
  const cable = `
    ip link add agent${index} type veth peer name target0 netns ${name}
    ip addr add ${there}/24 dev agent${index}
    ip link set agent${index} up`;
  const here = `
    ip link set lo up
    ip addr add ${address}/24 dev target0
    ip link set target0 up
    ip route add default via ${there}`;
  await must(["nsenter", `--net=${layout.netns}`, "sh", "-ec", cable]);
  await must(["nsenter", `--net=${netns}`, "sh", "-ec", here]);
  return {
    address: address ?? "",
    netns,
    argv: (argv: readonly string[], cwd?: string) => agentMachineArgv({ ...layout, agentNetns: netns }, argv, cwd),
    [Symbol.asyncDispose]: async () => void (await must(["ip", "netns", "del", name])),
  };
}

/** The command that runs `argv` in the agent's network with this machine's files. */
export function agentNetworkArgv(layout: Layout, argv: readonly string[]): string[] {
  return ["nsenter", `--net=${layout.agentNetns}`, ...argv];
}

/** The command that runs `argv` on the agent's machine: its network, its host name, and of the target's files and of what pods
 *  leave on a machine nothing. Its process is the one started. */
export function agentMachineArgv(layout: Layout, argv: readonly string[], cwd = "/"): string[] {
  const script = [
    `hostname ${hostname}`,
    ...targetFolders(layout).map((folder) => `mount -n -t tmpfs -o mode=0755 tmpfs ${folder}`),
    ...["hosts", "resolv.conf"].map((file) => `mount -n --bind ${join(filesFolder(layout), file)} /etc/${file}`),
    `cd ${cwd}`,
    'exec "$@"',
  ];
  const own = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-ec", script.join("\n"), "sh"];
  return agentNetworkArgv(layout, [...own, ...argv]);
}

/** The folders that are the target's alone: there each is empty. What the agent needs for itself (configuration, kubeconfig, key,
 *  certificates) is beside them. */
export function targetFolders(layout: Layout): string[] {
  const { containerd, docker, etcd, registry, kubeletRoot, podLogs } = layout;
  const machine = ["/run", "/var/lib", "/var/log", ...cgroupHierarchies()];
  return [...machine, containerd, docker, etcd, registry, kubeletRoot, podLogs].filter((folder) => existsSync(folder));
}

function filesFolder({ dir }: Layout): string {
  return join(dir, "agent");
}
