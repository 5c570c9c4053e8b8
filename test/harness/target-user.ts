import { chmodSync } from "node:fs";
import { join } from "node:path";
import type { Cluster } from "./cluster.ts";

/** Somebody other than root on the target, who is logged in as with the agent's key. */
export interface TargetUser {
  readonly name: string;
  readonly home: string;
}

/** Makes a user of the target. @param can `sudo`: everything, without a password; `docker`: talk to the Docker Engine. */
export async function addTargetUser(cluster: Cluster, name: string, can: "sudo" | "docker"): Promise<TargetUser> {
  const home = join(cluster.layout.dir, `home-${name}`);
  const right = {
    sudo: `echo '${name} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/${name}; chmod 440 /etc/sudoers.d/${name}`,
    docker: `usermod --append --groups docker ${name}`,
  };
  const script = [
    `useradd --create-home --home-dir ${home} --shell /bin/sh ${name}`,
    // Without PAM sshd refuses who has no password at all.
    `usermod --password '*' ${name}`,
    right[can],
  ];
  const { code, stderr } = await cluster.runInside(["sh", "-ec", script.join("\n")]);
  if (code !== 0) throw new Error(`user ${name} could not be made on the target: ${stderr}`);
  // sshd reads the list of keys as the user.
  chmodSync(cluster.layout.ssh, 0o711);
  return { name, home };
}
