import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { must } from "../harness/processes.ts";
import { cached, installDebian, maskUnits } from "./debian.ts";
import { type SystemName, systems } from "./systems.ts";

/** Units that a machine of minutes has no use for. */
export const quieted = [
  ..."apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service".split(" "),
  ..."fstrim.timer getty@tty1.service".split(" "),
];

/** Units that run where a test starts them: one runtime is enough for a machine, and one SSH server. */
const idle = [
  "multi-user.target.wants/docker.service",
  "sockets.target.wants/docker.socket",
  "multi-user.target.wants/dropbear.service",
];

/** The folder of a system with systemd, an SSH server, containerd and the Docker Engine, that all machines share and nothing is written to:
 *  made once per recipe, in one to two minutes. Throws with the end of what its maker said when that fails. */
export function systemRoot(name: SystemName, say: (line: string) => void): Promise<string> {
  const { title, suite, packages, without, after = [] } = systems[name];
  const recipe = { suite, packages, without };
  return cached({
    kind: "root",
    recipe: [recipe, after, quieted, idle],
    waiting: `making the ${title} that machines of tests boot: once per change of its recipe, up to two minutes`,
    say,
    async make(folder) {
      await installDebian(recipe, folder);
      for (const script of after) await must(["chroot", folder, "sh", "-ec", script]);
      settle(folder);
    },
  });
}

/** Takes away what must differ from machine to machine, and masks what is of no use. */
export function settle(root: string): void {
  const ssh = join(root, "etc/ssh");
  for (const name of readdirSync(ssh).filter((file) => file.startsWith("ssh_host_"))) rmSync(join(ssh, name));
  rmSync(join(root, "etc/dropbear"), { recursive: true, force: true });
  writeFileSync(join(root, "etc/machine-id"), "");
  for (const file of ["etc/resolv.conf", "etc/hostname"]) rmSync(join(root, file), { force: true });
  for (const want of idle) rmSync(join(root, "etc/systemd/system", want), { force: true });
  maskUnits(root, quieted);
}
