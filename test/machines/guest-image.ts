import { chmodSync, cpSync, globSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentAddresses } from "../harness/agent-machine.ts";
import { addresses, plainRegistryHost, privateRegistryHost } from "../harness/namespaces.ts";
import { must } from "../harness/processes.ts";
import type { GuestSizes } from "../harness/state.ts";
import { buildRuntime } from "../harness/tools.ts";
import { cached, type DebianRecipe, installDebian, maskUnits, unread } from "./debian.ts";
import { guestSystems } from "./guest-systems.ts";
import { installBuilt } from "./built.ts";
import { quieted, settle } from "./root.ts";

/** Files of a guest that all guests share. */
export interface GuestImage {
  readonly folder: string;
  readonly kernel: string;
  readonly initrd: string;
  /** Its disk, raw; guests write to layers above it. */
  readonly disk: string;
  /** Key that root logs in with over the harness's own way. */
  readonly key: string;
}

/** Modules without which it does not find its disk: the fewer, the sooner it boots. */
const modules = "virtio_pci virtio_blk ext4";

const debian = {
  packages: [
    ..."systemd systemd-sysv dbus libpam-systemd polkitd openssh-server sudo util-linux kmod procps iproute2".split(
      " ",
    ),
    ..."linux-image-cloud-amd64 initramfs-tools zstd apparmor numactl e2fsprogs".split(" "),
    ..."containerd runc crun docker.io containernetworking-plugins iptables nftables conntrack ipset".split(" "),
    ..."socat inotify-tools ethtool iputils-ping netcat-openbsd curl ca-certificates strace".split(" "),
    ..."nfs-common nfs-kernel-server open-iscsi tgt multipath-tools busybox-static".split(" "),
  ],
  without: unread,
  before: [
    `mkdir -p "$1/etc/initramfs-tools/conf.d"`,
    `echo MODULES=list > "$1/etc/initramfs-tools/conf.d/modules"`,
    `echo ${modules} | tr ' ' '\\n' > "$1/etc/initramfs-tools/modules"`,
  ],
};

/** What a guest with SELinux has in addition. */
const labelled = ["selinux-policy-default", "selinux-utils", "policycoreutils"];

const enforcing = "SELINUX=enforcing\nSELINUXTYPE=default\n";

/** Units that a test starts where it needs them. */
const asleep = [
  "containerd.service docker.service docker.socket nfs-server.service rpcbind.service rpcbind.socket ssh.service",
  "tgt.service iscsid.socket iscsid.service open-iscsi.service multipathd.socket multipathd.service",
].join(" ");

/** Units that a machine without a real firmware, clock or screen has no use for. */
const useless = [
  ..."systemd-timesyncd.service nfs-blkmap.service modprobe@drm.service modprobe@efi_pstore.service".split(" "),
  "modprobe@loop.service",
];

const diskGiB = 8;

/** Gives the machine its name and addresses at each boot, from the kernel's command line or, for one that goes on from a saved
 *  state, from arguments. Addresses are the same for all: each guest's network is its cluster's. */
const identify = `#!/bin/sh
for word in $(cat /proc/cmdline) "$@"; do
  case $word in guest.name=*) name=\${word#*=};; guest.mac=*) mac=\${word#*=};; esac
done
hostname "$name"
echo "$name" >/etc/hostname
echo "127.0.0.1 localhost $name" >/etc/hosts
echo "${addresses.node} ${privateRegistryHost} ${plainRegistryHost}" >>/etc/hosts
ip link set lo up
[ $# = 0 ] || { ip link set eth0 address "$mac"; tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id; exit 0; }
ip link set eth0 up
ip addr add ${addresses.guest}/${addresses.nodePrefix} dev eth0
ip addr add ${agentAddresses.target}/${agentAddresses.prefix} dev eth0
ip route replace default via ${addresses.node} src ${addresses.guest}
sysctl -qw net.ipv4.ip_forward=1
`;

const units: Readonly<Record<string, string>> = {
  "identify.service": `[Unit]
DefaultDependencies=no
Wants=sys-subsystem-net-devices-eth0.device
After=local-fs.target sys-subsystem-net-devices-eth0.device
Before=network-pre.target network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/identify
[Install]
WantedBy=multi-user.target
`,
  "way-in.service": `[Unit]
Description=The harness's own way in
After=identify.service
[Service]
ExecStartPre=/bin/mkdir -p /run/sshd
ExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/way-in.conf
[Install]
WantedBy=multi-user.target
`,
};

/** Configuration of the harness's own sshd. With SELinux the SFTP server is a program, as Debian configures it: the one within sshd may
 *  write only what sshd may. */
function wayIn(selinux: boolean): string {
  return `ListenAddress ${addresses.guest}
HostKey /etc/ssh/way-in.key
AuthorizedKeysFile /etc/ssh/way-in.keys
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
MaxSessions 200
MaxStartups 100
PidFile none
Subsystem sftp ${selinux ? "/usr/lib/openssh/sftp-server" : "internal-sftp"}
`;
}

type GuestKind = Pick<GuestSizes, "selinux" | "system">;

/** The kernel and the disk that guests boot: Debian with systemd, containerd, runc, crun and Docker, made once for each recipe, in
 *  one to two minutes. With SELinux instead of AppArmor, files have the labels of Debian's policy. */
export async function guestImage(say: (line: string) => void, kind: GuestKind = {}): Promise<GuestImage> {
  const { selinux = false } = kind;
  const { disk: system = kind.system, built, files = {} } = guestSystems[kind.system ?? "debian-12"];
  const runtime = built && { name: built, folder: await buildRuntime(built, say) };
  const folder = await cached({
    kind: kindOf("guest", { ...(system && { system }), selinux }),
    recipe: [
      recipeOf(kind),
      quieted,
      useless,
      asleep,
      identify,
      units,
      wayIn(selinux),
      diskGiB,
      ...(selinux ? [enforcing, containerPolicy] : []),
      ...(runtime ? [runtime] : []),
      ...Object.entries(files),
    ],
    waiting: "making the disk that guests boot: once per change of its recipe, about two minutes",
    say,
    async make(folder) {
      await make(folder, kind, (root) => {
        for (const [path, text] of Object.entries(files)) writeFileSync(join(root, path), text);
        if (runtime) installBuilt(runtime.name, runtime.folder, root);
      });
    },
  });
  const file = (name: string) => join(folder, name);
  return { folder, kernel: file("kernel"), initrd: file("initrd"), disk: file("disk"), key: file("key") };
}

/** The beginning of the names of a kind's products. */
export function kindOf(name: string, { selinux, system }: GuestKind): string {
  return [...(system ? [system] : []), ...(selinux ? ["selinux"] : []), name].join("-");
}

function recipeOf({ selinux = false, system = "debian-12" }: GuestKind): DebianRecipe {
  const { suite, packages = [] } = guestSystems[system];
  return { ...debian, suite, packages: [...debian.packages, ...packages, ...(selinux ? labelled : [])] };
}

/** @param install adds to the root folder what no package brings. */
async function make(folder: string, kind: GuestKind, install: (root: string) => void): Promise<void> {
  const { selinux = false } = kind;
  mkdirSync(folder, { mode: 0o700 });
  const root = join(folder, "root");
  await must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guest", "-f", join(folder, "key")]);
  await installDebian(recipeOf(kind), root);
  settle(root);
  maskUnits(root, useless);
  install(root);
  await furnish(root, readFileSync(join(folder, "key.pub"), "utf8"), wayIn(selinux));
  const boot = (pattern: string) => globSync(join(root, "boot", pattern))[0] ?? "";
  cpSync(boot("vmlinuz-*"), join(folder, "kernel"));
  cpSync(boot("initrd.img-*"), join(folder, "initrd"));
  for (const file of globSync(join(root, "boot", "{initrd.img,vmlinuz}-*"))) rmSync(file);
  if (selinux) await label(root);
  const disk = join(folder, "disk");
  await must(["truncate", "--size", `${diskGiB}G`, disk]);
  await must(["mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, disk], { timeoutMs: 300_000 });
  rmSync(root, { recursive: true });
}

/** Containers' processes and files: Debian's policy names their types in lxc_contexts, and does not define them. A process that root
 *  starts with this type runs programs of the machine, and uses files of its own categories; it may say so to whoever started it. */
const containerPolicy = `(type container_t)
(type container_file_t)
(roletype system_r container_t)
(roletype object_r container_file_t)
${["domain", "file_type", "mcs_constrained_type", "unconfined_t", "sshd_t", "bin_t"]
  .map((name) => `(typeattributeset cil_gen_require ${name})`)
  .join("\n")}
(typeattributeset domain (container_t))
(typeattributeset mcs_constrained_type (container_t))
(typeattributeset file_type (container_file_t))
(allow unconfined_t container_t (process (transition)))
(allow container_t unconfined_t (fd (use)))
(allow container_t sshd_t (fd (use)))
(allow container_t sshd_t (fifo_file (read write getattr)))
(allow container_t bin_t (dir (search)))
(allow container_t bin_t (file (entrypoint execute read open getattr map)))
(allow container_t container_file_t (file (create open read write append getattr setattr unlink)))
(allow container_t container_file_t (dir (open read search getattr write add_name remove_name)))
`;

/** Completes the policy, and labels all files, which the disk then has: no guest needs to do so at its first boot. */
async function label(root: string): Promise<void> {
  writeFileSync(join(root, "etc/selinux/config"), enforcing);
  const contexts = "/etc/selinux/default/contexts/files/file_contexts";
  // It reaches files through /proc.
  writeFileSync(join(root, "root/container.cil"), containerPolicy);
  const label = `semodule -N -s default -i /root/container.cil; setfiles -F -m ${contexts} /`;
  const labelling = `mount -t proc proc "$1/proc"; exec chroot "$1" sh -ec "${label}"`;
  await must(["unshare", "--mount", "sh", "-ec", labelling, "sh", root], { timeoutMs: 300_000 });
}

async function furnish(root: string, key: string, way: string): Promise<void> {
  const files: Readonly<Record<string, string>> = {
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "etc/resolv.conf": "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n",
    "etc/ssh/way-in.conf": way,
    "etc/ssh/way-in.keys": key,
    "usr/local/sbin/identify": identify,
    ...Object.fromEntries(Object.entries(units).map(([name, text]) => [`etc/systemd/system/${name}`, text])),
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(root, name), text);
  chmodSync(join(root, "usr/local/sbin/identify"), 0o755);
  // No name is looked up before somebody has it: the symlink is systemd's.
  await must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "way-in", "-f", join(root, "etc/ssh/way-in.key")]);
  const wants = join(root, "etc/systemd/system/multi-user.target.wants");
  mkdirSync(wants, { recursive: true });
  await must(["chroot", root, "systemctl", "-q", "disable", ...asleep.split(" ")]);
  for (const name of Object.keys(units)) symlinkSync(`../${name}`, join(wants, name));
  await must(["chroot", root, "systemctl", "-q", "enable", "serial-getty@ttyS0.service"]);
  await must(["chroot", root, "passwd", "-q", "-d", "root"]);
}
