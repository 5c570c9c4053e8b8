import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ContainerdVersion } from "./containerd-version.ts";
import type { DockerVersion } from "./docker-version.ts";
import { identify, isAlive, type ProcessId } from "./processes.ts";
import type { ProviderName } from "./runtime-daemon.ts";
import type { GuestSystemName } from "../machines/guest-systems.ts";
import type { SshServer, SystemName } from "../machines/systems.ts";

/** What a target with a kernel of its own is given. */
export interface GuestSizes {
  readonly cpus: number;
  /** CPUs and memory are split evenly over so many nodes. */
  readonly numa: number;
  /** CPUs that are a core. Where it is given each NUMA node is a socket. */
  readonly threadsPerCore?: number;
  readonly memoryMiB: number;
  /** Of a disk that is swap; 0 for none. */
  readonly swapMiB: number;
  /** Disks more, empty. */
  readonly disksMiB: readonly number[];
  /** SELinux, permissive, instead of AppArmor. */
  readonly selinux?: boolean;
  /** Debian 12 unless given. */
  readonly system?: GuestSystemName;
}

/** Those of a guest that a test asks nothing special of. */
export const guestSizes: GuestSizes = { cpus: 2, numa: 2, memoryMiB: 2048, swapMiB: 512, disksMiB: [] };

/** What a machine with a systemd is made of. */
export interface MachineSystem {
  readonly system: SystemName;
  readonly sshServer: SshServer;
}

/** What must be known to find a cluster again, also after a crash. Everything else follows from its name. */
export interface ClusterState {
  readonly name: string;
  readonly nodeName: string;
  /** What its machine runs pods with. */
  readonly provider: ProviderName;
  /** Of what version its containerd is, where it has one. */
  readonly containerd: ContainerdVersion;
  /** Of what version its Docker Engine is, where it has one. */
  readonly docker: DockerVersion;
  /** Of what system its target is, where that is a machine with a systemd on this machine's kernel, and which SSH server it has. */
  readonly machineSystem?: MachineSystem;
  /** The process whose end is the cluster's end; absent for a cluster that stays until `down`. */
  readonly owner?: ProcessId;
  /** The process that keeps the mount namespace. */
  readonly holder?: ProcessId;
  /** The systemd of the target, where that is a machine with one: a process 1, by its number here. */
  readonly machine?: ProcessId;
  /** The emulator of the target, where that has a kernel of its own, once it runs. */
  readonly guest?: ProcessId;
  readonly guestSizes?: GuestSizes;
  /** The cluster's daemons by role: `etcd`, `kube-apiserver`, `containerd` … */
  readonly daemons: Readonly<Record<string, ProcessId>>;
  readonly privatePassword: string;
}

/** Where a cluster keeps what; all below one folder, the same path inside and outside its namespaces. */
export interface Layout {
  readonly name: string;
  readonly dir: string;
  readonly stateFile: string;
  readonly pki: string;
  readonly logs: string;
  readonly etcd: string;
  readonly containerd: string;
  readonly containerdSocket: string;
  readonly docker: string;
  readonly dockerSocket: string;
  readonly registry: string;
  /** What an agent on another machine needs to log in here, and sshd to let it. */
  readonly ssh: string;
  /** The agent's root directory, its pod logs and its static pods. */
  readonly kubeletRoot: string;
  readonly podLogs: string;
  readonly staticPods: string;
  readonly resolvConf: string;
  /** Leads to the API server, from outside the cluster's network. */
  readonly apiSocket: string;
  /** The cluster's network namespace: its name for `ip netns` and its path for nsenter. */
  readonly netnsName: string;
  readonly netns: string;
  /** The network namespace of the agent's own machine, where it has one. */
  readonly agentNetnsName: string;
  readonly agentNetns: string;
  /** The cgroup below which the pods of this cluster run. */
  readonly cgroup: string;
}

/** The folder that holds a folder per cluster; long-lived files, so neither /run nor /tmp. */
export const clustersFolder = "/var/tmp/graftlet-test";

/** The paths of a cluster. Throws when the name could not be one of a namespace, a folder and a cgroup. */
export function layoutOf(name: string): Layout {
  if (!/^[a-z0-9][a-z0-9-]{0,35}$/.test(name))
    throw new Error(
      `a cluster cannot be called ${JSON.stringify(name)}: at most 36 lower-case letters, digits and dashes`,
    );
  const dir = join(clustersFolder, name);
  return {
    name,
    dir,
    stateFile: join(dir, "state.json"),
    pki: join(dir, "pki"),
    logs: join(dir, "logs"),
    etcd: join(dir, "etcd"),
    containerd: join(dir, "containerd"),
    containerdSocket: join(dir, "containerd", "containerd.sock"),
    docker: join(dir, "docker"),
    dockerSocket: join(dir, "docker", "docker.sock"),
    registry: join(dir, "registry"),
    ssh: join(dir, "ssh"),
    kubeletRoot: join(dir, "kubelet"),
    podLogs: join(dir, "pod-logs"),
    staticPods: join(dir, "manifests"),
    resolvConf: join(dir, "resolv.conf"),
    apiSocket: join(dir, "api.sock"),
    netnsName: `graftlet-${name}`,
    netns: `/run/netns/graftlet-${name}`,
    agentNetnsName: `graftlet-${name}-agent`,
    agentNetns: `/run/netns/graftlet-${name}-agent`,
    cgroup: `/graftlet-${name}`,
  };
}

/** The names of all clusters that have a folder, running or left over. */
export function clusterNames(): string[] {
  return existsSync(clustersFolder) ? readdirSync(clustersFolder) : [];
}

/** The state of a cluster; `undefined` when there is none or it was torn while being written. */
export function readState(layout: Layout): ClusterState | undefined {
  try {
    return JSON.parse(readFileSync(layout.stateFile, "utf8")) as ClusterState;
  } catch {
    return undefined;
  }
}

/** Whether the target of a cluster is a guest, with a kernel, files and processes of its own. */
export function ownsKernel(layout: Layout): boolean {
  return readState(layout)?.guestSizes !== undefined;
}

/** Replaces the state of a cluster in one step. */
export function writeState(layout: Layout, state: ClusterState): void {
  const partial = `${layout.stateFile}.partial`;
  writeFileSync(partial, JSON.stringify(state, undefined, 2), { mode: 0o600 });
  renameSync(partial, layout.stateFile);
}

/** Whether a cluster's folder is held by a living owner, or by daemons of a cluster without owner. */
export function isHeld(layout: Layout): boolean {
  const state = readState(layout);
  if (!state) return false;
  if (state.owner) return isAlive(state.owner);
  return state.holder !== undefined && isAlive(state.holder);
}

/** What is settled before anything of a cluster is made. */
export type FirstState = Pick<
  ClusterState,
  "nodeName" | "provider" | "containerd" | "docker" | "privatePassword" | "guestSizes" | "machineSystem"
>;

/**
 * Takes the name for a new cluster: making its folder is the lease, so of two callers one gets it.
 * Returns false when the folder is there already.
 */
export function takeLease(layout: Layout, first: FirstState): boolean {
  mkdirSync(clustersFolder, { recursive: true, mode: 0o755 });
  try {
    mkdirSync(layout.dir, { mode: 0o755 });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "EEXIST") return false;
    if (code === "ENOENT") return takeLease(layout, first);
    throw error;
  }
  const self = identify(process.pid);
  writeState(layout, { name: layout.name, ...first, daemons: {}, ...(self ? { owner: self } : {}) });
  return true;
}

/** Makes a cluster one that stays until somebody removes it. */
export function disown(layout: Layout): void {
  const state = readState(layout);
  if (!state) return;
  const { owner: _, ...rest } = state;
  writeState(layout, rest);
}

/** Removes the folder of clusters when the last one has gone. */
export function forgetClustersFolder(): void {
  try {
    rmdirSync(clustersFolder);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== "ENOTEMPTY" && code !== "ENOENT") throw error;
  }
}
