import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentAddresses } from "./agent-machine.ts";
import { addresses, networkArgv } from "./namespaces.ts";
import { inodeOf, listProcesses, must, type ProcessId, run } from "./processes.ts";
import { type ProviderName, runtimeDaemons } from "./runtime-daemon.ts";
import type { Layout } from "./state.ts";

/** Makes the target's host key and the agent's own, which root's login there takes. */
export async function createSshKeys(layout: Layout): Promise<void> {
  mkdirSync(layout.ssh, { mode: 0o700 });
  await Promise.all([makeKey(hostKeyFile(layout)), makeKey(loginKeyFile(layout))]);
  writeFileSync(authorizedKeys(layout), readFileSync(`${loginKeyFile(layout)}.pub`));
}

/** Makes a key pair at a path of which nothing is there. */
export async function makeKey(file: string): Promise<void> {
  await must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "graftlet-test", "-f", file]);
}

/** Runs sshd in the foreground with the cluster's configuration, as one line for a shell or a unit. */
export function sshdCommand(layout: Layout): string {
  return `/usr/sbin/sshd -D -e -f ${configFile(layout)}`;
}

/** The command of what listens in its place, and starts an sshd for each connection.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/systemd-socket-activate.html */
export function activatedSshdCommand(layout: Layout): string {
  const { target, sshPort } = agentAddresses;
  const listening = `/usr/bin/systemd-socket-activate --accept --inetd --listen=${target}:${sshPort}`;
  return `${listening} /usr/sbin/sshd -i -e -f ${configFile(layout)}`;
}

/** The command of a dropbear in sshd's place, with the same address and host key. @see https://manpages.debian.org/dropbear-bin/dropbear.8 */
export function dropbearCommand(layout: Layout): string {
  const { target, sshPort } = agentAddresses;
  return `/usr/sbin/dropbear -F -E -p ${target}:${sshPort} -r ${dropbearKeyFile(layout)}`;
}

/** Writes what such a dropbear finds at the paths that it knows. @param above the folder that is above / of the machine. */
export async function writeDropbearFiles(layout: Layout, above: string): Promise<void> {
  await must(["dropbearconvert", "openssh", "dropbear", hostKeyFile(layout), dropbearKeyFile(layout)]);
  mkdirSync(join(above, "root"), { recursive: true, mode: 0o700 });
  mkdirSync(join(above, "root/.ssh"), { mode: 0o700 });
  writeFileSync(join(above, "root/.ssh/authorized_keys"), readFileSync(authorizedKeys(layout)), { mode: 0o600 });
}

function dropbearKeyFile(layout: Layout): string {
  return join(layout.ssh, "host.dropbear");
}

/** The key by which the target is known. */
export function hostKeyFile(layout: Layout): string {
  return join(layout.ssh, "host");
}

/** The key that the agent logs in with. */
export function loginKeyFile(layout: Layout): string {
  return join(layout.ssh, "id");
}

/** Settings of the ssh provider for an agent on the other machine. The runtime is this node's alone, as the cri provider has it:
 *  so that tests of what a node removes hold for both. */
export function sshSettings(layout: Layout, provider: ProviderName, runtimeSocket: string): Record<string, unknown> {
  return {
    host: agentAddresses.target,
    port: agentAddresses.sshPort,
    user: "root",
    privateKeyFile: loginKeyFile(layout),
    hostKeyFingerprints: [fingerprintOf(hostKeyFile(layout))],
    runtime: `unix://${runtimeSocket}`,
    rootDir: layout.kubeletRoot,
    network: "routed",
    ...(runtimeDaemons[provider].role === "containerd"
      ? { cri: { sharing: "exclusive" } }
      : { docker: { podCIDR: addresses.pods } }),
  };
}

/** Writes sshd's configuration. Of two lines for a setting sshd takes the first, so `lines` win.
 *  @see https://man.openbsd.org/sshd_config */
export function writeSshdConfig(layout: Layout, lines: readonly string[] = []): void {
  const config = [
    ...lines,
    `Port ${agentAddresses.sshPort}`,
    `ListenAddress ${agentAddresses.target}`,
    // Host keys add up.
    ...(lines.some((line) => line.startsWith("HostKey ")) ? [] : [`HostKey ${hostKeyFile(layout)}`]),
    `AuthorizedKeysFile ${authorizedKeys(layout)}`,
    // The folder of all clusters is below one that anybody may write to.
    "StrictModes no",
    "UsePAM no",
    "PermitRootLogin prohibit-password",
    "PasswordAuthentication no",
    "PidFile none",
    "LogLevel VERBOSE",
    "Subsystem sftp internal-sftp",
    "",
  ];
  writeFileSync(configFile(layout), config.join("\n"));
}

/** The command line of sshd. It keeps what it needs in the cluster's own /run, and logs to standard error. Root has a bare home
 *  there (/etc is the cluster's own too): a login shell reads what a developer has in theirs. */
export function sshdArgv(layout: Layout): string[] {
  const home = join(layout.ssh, "home");
  const script = [
    `mkdir -p /run/sshd ${home}`,
    `sed -i 's|^root:\\(.*\\):[^:]*:\\([^:]*\\)$|root:\\1:${home}:\\2|' /etc/passwd`,
    `exec ${sshdCommand(layout)}`,
  ];
  return ["sh", "-ec", script.join("\n")];
}

/** Whether sshd takes connections. */
export async function sshdListens(layout: Layout): Promise<boolean> {
  const { stdout } = await run(networkArgv(layout, ["ss", "-Hltn", `sport = :${agentAddresses.sshPort}`]));
  return stdout.includes(`${agentAddresses.target}:`);
}

/** How often somebody has connected to sshd so far, whether or not a login came of it. */
export function sshdConnections(layout: Layout): number {
  return readFileSync(join(layout.logs, "sshd.log"), "utf8").match(/^Connection from /gm)?.length ?? 0;
}

/** The cluster's sshd and those of its processes that hold a connection each. */
export function sshdProcesses(layout: Layout): ProcessId[] {
  const netns = inodeOf(layout.netns);
  return listProcesses().filter(
    (entry) => entry.netns === netns && /^(sshd(-session|-auth)?|dropbear)$/.test(programOf(entry.pid) ?? ""),
  );
}

/** `SHA256:…` of a public key's file, as `ssh-keygen -l` prints it. */
function fingerprintOf(file: string): string {
  const key = readFileSync(`${file}.pub`, "utf8").split(" ")[1] ?? "";
  const digest = createHash("sha256").update(Buffer.from(key, "base64")).digest("base64");
  return `SHA256:${digest.replace(/=+$/, "")}`;
}

function programOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return undefined;
  }
}

function authorizedKeys(layout: Layout): string {
  return join(layout.ssh, "authorized_keys");
}

function configFile(layout: Layout): string {
  return join(layout.ssh, "sshd_config");
}
