import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isAlive, must, type ProcessId, startDaemon } from "./processes.ts";
import type { Layout } from "./state.ts";
import { Hopeless, waitFor } from "./wait.ts";

/** The addresses of a cluster. Every cluster has the same: its network namespace is its own. */
export const addresses = {
  node: "10.10.0.1",
  /** Of a target that has a kernel of its own, beside the cluster's other daemons. */
  guest: "10.10.0.2",
  nodePrefix: 24,
  services: "10.96.0.0/16",
  apiServerService: "10.96.0.1",
  dns: "10.96.0.10",
  /** Those of a Docker Engine's pods. */
  pods: "10.244.0.0/24",
  /** Those of CNI, more than a run has pods: to the machine's ARP table one that is given twice is the pod before, for seconds. */
  cniPods: "10.244.0.0/18",
  apiServerPort: 6443,
  /** None that upstream's tests have pods take of the node, as 5000 is. */
  registryPort: 5100,
  privateRegistryPort: 5101,
  plainRegistryPort: 80,
  etcd: "http://127.0.0.1:2379",
} as const;

/** The name of the registry that asks for credentials; /etc/hosts inside the cluster knows it. */
export const privateRegistryHost = "private.test";

/** The name of a registry that Docker has no mirror for: inside, the open registry answers to it as well, on port 80. */
export const plainRegistryHost = "registry.k8s.io";

/**
 * The machine's folders that a cluster's programs write to. Inside they are copy-on-write: what the
 * machine has can be read, what is written stays in the cluster's folder.
 */
const copiedOnWrite = ["/etc", "/run", "/var/lib", "/var/log"];

/** Where a kubelet that has run on this machine leaves files: inside there has never been one. */
const leftByKubelets = ["/var/lib/kubelet", "/var/log/pods", "/var/log/containers"];

/** A resolv.conf whose server is nobody: a name that is not in /etc/hosts fails at once, with no wait. */
export const noNameServer = "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n";

/** Kernel settings that a kubelet writes (kubelet: setupKernelTunables); inside they have these values already. */
export const settledSettings: Readonly<Record<string, string>> = {
  "/proc/sys/vm/overcommit_memory": "1",
  "/proc/sys/vm/panic_on_oom": "0",
  "/proc/sys/kernel/panic": "10",
  "/proc/sys/kernel/panic_on_oops": "1",
  "/proc/sys/kernel/keys/root_maxkeys": "1000000",
  "/proc/sys/kernel/keys/root_maxbytes": "25000000",
};

/** Makes the cluster's network namespace: a loopback, the node's address, a default route, forwarding. */
export async function createNetwork(layout: Layout, address: string = addresses.node): Promise<void> {
  await must(["ip", "netns", "add", layout.netnsName]);
  const script = `
    ip link set lo up
    ip link add node0 type veth peer name uplink0
    ip link set uplink0 up
    ip addr add ${address}/${addresses.nodePrefix} dev node0
    ip link set node0 up
    ip route add default via ${address.replace(/\d+$/, "254")} dev node0
    echo 1 > /proc/sys/net/ipv4/ip_forward
    if [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]; then echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables; fi`;
  await must(["nsenter", `--net=${layout.netns}`, "sh", "-ec", script]);
}

/**
 * Starts the process that keeps the cluster's mount namespace. All of it is private to the machine
 * and shared within (as systemd sets up a machine, so that Bidirectional mounts work), so that with
 * its last process every mount of every pod is gone.
 */
export async function startHolder(layout: Layout, hostname: string): Promise<ProcessId> {
  const own = join(layout.dir, "own");
  mkdirSync(own);
  const ready = join(own, "ready");
  writeFileSync(
    join(own, "hosts"),
    `127.0.0.1 localhost ${privateRegistryHost} ${plainRegistryHost}\n${addresses.node} ${hostname}\n`,
  );
  writeFileSync(join(own, "resolv.conf"), noNameServer);
  const lines = [
    ...copiedOnWrite.flatMap((path) => {
      const layer = join(own, path.slice(1).replaceAll("/", "-"));
      return [
        `mkdir -p ${layer}/upper ${layer}/work`,
        `mount -t overlay overlay -o lowerdir=${path},upperdir=${layer}/upper,workdir=${layer}/work ${path}`,
      ];
    }),
    // Seen through the layer alone: what a kubelet of this machine has left stays where it is.
    `rm -rf ${leftByKubelets.join(" ")}`,
    ...["hosts", "resolv.conf"].flatMap((file) => [`rm -f /etc/${file}`, `cp ${own}/${file} /etc/${file}`]),
    ...Object.entries(settledSettings).flatMap(([path, value]) => {
      const file = join(own, path.slice(1).replaceAll("/", "-"));
      return [`echo ${value} > ${file}`, `mount --bind ${file} ${path}`];
    }),
    // The kernel lets a user namespace mount /proc only where a /proc without covered files can be seen.
    `mkdir ${own}/proc`,
    `mount -t proc proc ${own}/proc`,
    "mount --make-rshared /",
    `touch ${ready}`,
    "exec sleep infinity",
  ];
  const log = join(layout.logs, "holder.log");
  const holder = await startDaemon(
    [
      "nsenter",
      `--net=${layout.netns}`,
      "unshare",
      "--mount",
      "--propagation",
      "private",
      "sh",
      "-ec",
      lines.join("\n"),
    ],
    log,
    { cwd: "/" },
  );
  await waitFor(
    "the cluster's mount namespace",
    async () => {
      if (!isAlive(holder))
        throw new Hopeless(`the mount namespace could not be made: ${await must(["tail", "-n", "5", log])}`);
      return (await must(["sh", "-c", `test -e ${ready} && echo yes || true`])).trim() === "yes";
    },
    { timeoutMs: 20_000, everyMs: 20 },
  );
  return holder;
}

/** The command that runs `argv` inside the cluster, in the same folder as outside. Its process is the one started. */
export function insideArgv(layout: Layout, holder: ProcessId, argv: readonly string[], cwd = "/"): string[] {
  return ["nsenter", `--net=${layout.netns}`, `--mount=/proc/${holder.pid}/ns/mnt`, "env", `--chdir=${cwd}`, ...argv];
}

/** The command that runs `argv` in the cluster's network with the machine's own files (kubectl, curl). */
export function networkArgv(layout: Layout, argv: readonly string[]): string[] {
  return ["nsenter", `--net=${layout.netns}`, ...argv];
}
