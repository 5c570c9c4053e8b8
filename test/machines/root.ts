import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cached, installDebian, maskUnits, unread } from "./debian.ts";

/** Ingredients of its machines. A change of this or of `quieted` makes another folder. */
const recipe = {
  suite: "bookworm",
  packages: [
    ..."systemd systemd-sysv dbus libpam-systemd openssh-server util-linux kmod procps iproute2".split(" "),
    ..."containerd docker.io runc containernetworking-plugins iptables conntrack socat inotify-tools sudo".split(" "),
  ],
  without: unread,
};

/** Units that a machine of minutes has no use for. */
export const quieted = [
  ..."apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service".split(" "),
  ..."fstrim.timer getty@tty1.service".split(" "),
];

/** Units that run where a test starts them: one runtime is enough for a machine. */
const idle = ["multi-user.target.wants/docker.service", "sockets.target.wants/docker.socket"];

/** The folder of a Debian with systemd, sshd, containerd and the Docker Engine, that all machines share and nothing is written to:
 *  made once per recipe, in one to two minutes. Throws with the end of what its maker said when that fails. */
export function debianRoot(say: (line: string) => void): Promise<string> {
  return cached({
    kind: "root",
    recipe: [recipe, quieted, idle],
    waiting: "making the Debian that machines of tests boot: once per change of its recipe, up to two minutes",
    say,
    async make(folder) {
      await installDebian(recipe, folder);
      settle(folder);
    },
  });
}

/** Takes away what must differ from machine to machine, and masks what is of no use. */
export function settle(root: string): void {
  const ssh = join(root, "etc/ssh");
  for (const name of readdirSync(ssh).filter((file) => file.startsWith("ssh_host_"))) rmSync(join(ssh, name));
  writeFileSync(join(root, "etc/machine-id"), "");
  for (const file of ["etc/resolv.conf", "etc/hostname"]) rmSync(join(root, file), { force: true });
  for (const want of idle) rmSync(join(root, "etc/systemd/system", want), { force: true });
  maskUnits(root, quieted);
}
