import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { must, run } from "../harness/processes.ts";
import { turn } from "../harness/turn.ts";

/** Ingredients of its machines. A change of this or of `quieted` makes another folder. */
const recipe = {
  suite: "bookworm",
  packages: [
    ..."systemd systemd-sysv dbus libpam-systemd openssh-server util-linux kmod procps iproute2".split(" "),
    ..."containerd runc docker.io containernetworking-plugins iptables conntrack socat inotify-tools sudo".split(" "),
  ],
  /** Of what nobody reads there. */
  without: ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"],
};

/** Units that a machine of minutes has no use for. */
const quieted = [
  ..."apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service".split(" "),
  ..."fstrim.timer getty@tty1.service".split(" "),
];

/** Units that a machine starts where it is asked to: its runtime is one of them. */
const idle = ["multi-user.target.wants/docker.service", "sockets.target.wants/docker.socket"];

/** The folder of a Debian with systemd, sshd, containerd and the Docker Engine, that all machines share and nothing is written to: made once per
 *  recipe, in one to two minutes. Throws with the end of what its maker said when that fails. */
export async function debianRoot(say: (line: string) => void): Promise<string> {
  const folder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "machines");
  const key = createHash("sha256")
    .update(JSON.stringify([recipe, quieted, idle]))
    .digest("hex")
    .slice(0, 16);
  const root = join(folder, key);
  if (existsSync(root)) return root;
  mkdirSync(folder, { recursive: true });
  await using _ = await turn(join(folder, ".building"));
  if (existsSync(root)) return root;
  say("making the Debian that machines of tests boot: once per change of its recipe, up to two minutes");
  const partial = join(folder, "partial");
  rmSync(partial, { recursive: true, force: true });
  await install(partial);
  settle(partial);
  for (const old of readdirSync(folder).filter((name) => /^[0-9a-f]{16}$/.test(name))) forget(join(folder, old));
  renameSync(partial, root);
  return root;
}

/** Runs of another recipe, in another checkout, may stand on the one before for some time. */
const keptDays = 7;

function forget(root: string): void {
  const { mtimeMs } = statSync(root);
  if (Date.now() - mtimeMs > keptDays * 86_400_000) rmSync(root, { recursive: true });
}

async function install(folder: string): Promise<void> {
  const { suite, packages, without } = recipe;
  const argv = ["mmdebstrap", "--variant=minbase", "--mode=root", `--include=${packages.join(",")}`];
  const excluded = without.map((path) => `--dpkgopt=path-exclude=${path}`);
  await must([...argv, ...excluded, suite, folder, ...(await sourcesOf(suite))], { timeoutMs: 900_000 });
}

/** Sources of a suite as this machine's own apt has them: that is where packages come from here. None where it has none of them,
 *  which means Debian's own. */
async function sourcesOf(suite: string): Promise<string[]> {
  const format = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)";
  const { stdout } = await run([
    "apt-get",
    "indextargets",
    "--format",
    format,
    "Created-By: Packages",
    "Origin: Debian",
  ]);
  const lines = stdout.split("\n").filter((line) => new RegExp(` ${suite}(-updates|-security)? main$`).test(line));
  return [...new Set(lines)];
}

/** Takes away what must differ from machine to machine, and masks what is of no use. */
function settle(root: string): void {
  const ssh = join(root, "etc/ssh");
  for (const name of readdirSync(ssh).filter((file) => file.startsWith("ssh_host_"))) rmSync(join(ssh, name));
  writeFileSync(join(root, "etc/machine-id"), "");
  for (const file of ["etc/resolv.conf", "etc/hostname"]) rmSync(join(root, file), { force: true });
  for (const unit of idle) rmSync(join(root, "etc/systemd/system", unit), { force: true });
  for (const unit of quieted) {
    const mask = join(root, "etc/systemd/system", unit);
    rmSync(mask, { force: true });
    symlinkSync("/dev/null", mask);
  }
}
