import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, abortError, messageOf } from "../../../src/lib/errors.ts";
import { programText } from "../../../src/lib/program-text.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { MissingPrivileges } from "../../../src/seams/provider.ts";
import type { SshConfig } from "../config.ts";
import { type Connection, endpointName } from "../connection/connection.ts";
import { LinkError } from "../connection/link-state.ts";
import type { Link } from "../connection/link.ts";
import { quote } from "./quote.ts";
import { type Session, type Sessions, discardChannel } from "../connection/sessions.ts";
import { startShell } from "./shell.ts";

/** A program that can relay its standard streams to a socket; `docker` only to the socket of a Docker Engine. */
export type RelayProgram = "python3" | "perl" | "socat" | "nc" | "ncat" | "docker";

/** The login's privileges on the target. */
export interface Privileges {
  /** How commands and file operations run: as root by login, as root by sudo, or as the login user. */
  readonly runAs: "root" | "sudo" | "user";
  readonly groups: readonly string[];
  /** Path of the target's SFTP server program. It is used if sshd has no sftp subsystem, or if the server has to run as root. */
  readonly sftpServer?: string;
  readonly relays: readonly RelayProgram[];
  /** True if the SSH server starts commands in the process group of its connection (dropbear): a signal to a command's group would end the
   *  connection, so shells start in a session of their own. */
  readonly needsSession?: boolean;
  /** True if the target enforces SELinux: its policy may let sshd connect to one socket, and not to another. */
  readonly enforcesSelinux?: boolean;
  /** True if the user is not root because sudo asks for a password. */
  readonly sudoNeedsPassword?: boolean;
  /** True if root's directory is not that of the target's first process: the runtime does not see the files that graftlet writes. */
  readonly inChroot?: boolean;
  /** Unmet requirements of a full node, one sentence each with the remedy. */
  readonly missing: readonly string[];
}

export interface PrivilegesOptions {
  readonly config: SshConfig;
  readonly link: Link;
  readonly sessions: Pick<Sessions, "openOn">;
  readonly clock: Clock;
}

/** Command line that starts a shell as the login user. */
export const plainShell = "exec /bin/sh";
const sudoShell = "exec sudo -n /bin/sh";
/** Timeout for a login shell's answer, ms. */
export const shellTimeoutMs = 15_000;
/** Time to wait for the session's end, ms: processes left by a login shell may hold it open. */
const endTimeoutMs = 1_000;
const sftpServers = [
  "/usr/lib/openssh/sftp-server",
  "/usr/libexec/openssh/sftp-server",
  "/usr/lib/ssh/sftp-server",
  "/usr/libexec/sftp-server",
  "/usr/lib/sftp-server",
  "/usr/lib64/misc/sftp-server",
  "/usr/lib/misc/sftp-server",
];
const relayPrograms: readonly RelayProgram[] = ["python3", "perl", "socat", "nc", "ncat", "docker"];

/** Probes the login's privileges on each new connection, and keeps the newest result. */
export function createPrivileges({ config, link, sessions, clock }: PrivilegesOptions) {
  let found: Privileges | undefined;
  const runProbe = async (connection: Connection, stop: AbortSignal): Promise<Privileges> => {
    const session = await sessions.openOn(connection, { exec: plainShell }, stop);
    try {
      link.countExchange();
      const shell = await startShell(session, stop);
      link.countExchange();
      const { stdout } = await shell.run({ script: probeScript(config), maxBytes: 16_384 }, stop);
      link.countExchange();
      await awaitEnd(session, clock.within(endTimeoutMs, stop));
      const output = stdout.toString("latin1");
      const server = parseServer(output);
      if (server !== undefined) connection.server = server;
      return parsePrivileges(output, config);
    } finally {
      discardChannel(session.channel);
    }
  };
  return {
    /** Probes a new connection. The probe's session has ended on return.
     *  @throws LinkError LoginShellTimeout, NoPosixShell, LoginInChroot, NoSessions; the signal's reason. */
    async probe(connection: Connection, signal: AbortSignal): Promise<Privileges> {
      const stop = clock.within(shellTimeoutMs, signal);
      const probed = await runProbe(connection, stop).catch((error: unknown) => {
        if (signal.aborted) throw abortError(signal);
        if (error instanceof LinkError) throw error;
        throw stop.aborted
          ? shellHangsError(config, error)
          : new LinkError("NoPosixShell", "failed_precondition", messageOf(error), { cause: error });
      });
      if (probed.inChroot) throw chrootError(config);
      found = probed;
      return found;
    },
    /** Returns the last result; waits for the link. @throws unavailable while the link is down. */
    async current(signal: AbortSignal): Promise<Privileges> {
      await link.connection(signal);
      if (!found) throw new CodedError("unavailable", "the target's privileges are not known yet");
      return found;
    },
  };
}

/** Waits for the shell's exit: until then sshd counts its session. */
async function awaitEnd({ channel }: Session, stop: AbortSignal): Promise<void> {
  const closed = new Promise<void>((resolve) => void channel.once("close", () => resolve()));
  channel.on("error", () => undefined);
  channel.end();
  await untilAborted(closed, stop).catch(() => undefined);
}

/** Error for a target whose login shell has not answered within `shellTimeoutMs`. */
export function shellHangsError(config: SshConfig, cause: unknown): LinkError {
  return new LinkError(
    "LoginShellTimeout",
    "unavailable",
    `the login shell of ${endpointName(config)} does not answer within ${shellTimeoutMs / 1000} s: check what its start-up files (~/.bashrc, ~/.profile, ~/.ssh/rc) or sudo wait for, and that /bin/sh is a POSIX shell.`,
    { cause },
  );
}

function chrootError(config: SshConfig): LinkError {
  return new LinkError(
    "LoginInChroot",
    "failed_precondition",
    `the login of ${endpointName(config)} is in a chroot or container, where the runtime does not see the files of pods: remove ChrootDirectory from the target's sshd_config for this user, or log in to the machine itself.`,
  );
}

/** Returns the command line that starts a shell with these privileges. It consists of plain words, since the login shell that
 *  parses it may be of any kind. */
export function shellCommand({ runAs, needsSession = false }: Pick<Privileges, "runAs" | "needsSession">): string {
  const shell = runAs === "sudo" ? sudoShell : plainShell;
  return needsSession ? shell.replace("exec ", "exec setsid ") : shell;
}

function probeScript({ sudo }: SshConfig): string {
  const trySudo = sudo === "auto" ? "gl_t=$(sudo -n /bin/sh -c : 2>&1 >/dev/null)" : "false";
  return [
    "gl_t= gl_sudo=",
    'if [ "$(id -u)" = 0 ]; then echo root',
    `elif ${trySudo}; then gl_sudo="sudo -n"; echo sudo`,
    // "a password is required" (sudo), "interactive authentication is required" (sudo-rs), "you must have a tty" (requiretty).
    'else case $gl_t in *"password is required"*|*"authentication is required"*) echo "user password";; *"have a tty"*) echo "user terminal";; *) echo user;; esac; fi',
    "id -Gn",
    findSftpServer,
    // Only OpenBSD's nc shuts down its side when its input ends (-N), and connects to sockets by path (-U).
    'gl_relays() { [ "$1" != nc ] || case $(nc -h 2>&1 </dev/null) in *-N*) ;; *) return 1;; esac; }',
    `for gl_f in ${relayPrograms.join(" ")}; do command -v "$gl_f" >/dev/null 2>&1 && gl_relays "$gl_f" && printf '%s ' "$gl_f"; done; echo`,
    // If the shell is not the leader of its process group, that group is the SSH server's.
    'if [ "$gl_group" = $$ ]; then gl_own=; else gl_own=setsid; fi',
    "for gl_f in stat readlink awk head dd $gl_own; do command -v $gl_f >/dev/null 2>&1 || printf '%s ' $gl_f; done; echo",
    "if [ -r /proc/self/mountinfo ]; then echo proc; else echo; fi",
    'echo "${gl_own:+shared}"',
    "cat /sys/fs/selinux/enforce 2>/dev/null; echo",
    programText("src/host/serving-process.sh"),
    'echo "$(serving_process)"',
    // Only root may look at the directory of another user's process.
    "gl_f=$($gl_sudo stat -L -c %d:%i /proc/1/root/ 2>/dev/null)",
    '[ -z "$gl_f" ] || [ "$gl_f" = "$(stat -L -c %d:%i /)" ] || echo chroot',
  ].join("\n");
}

/** Prints the path of the SFTP server program: in one of its usual places, on the PATH, or where sshd's configuration has it. */
const findSftpServer = [
  `for gl_f in ${sftpServers.map(quote).join(" ")} ''; do [ -z "$gl_f" ] || [ -x "$gl_f" ] && break; done`,
  '[ -n "$gl_f" ] || gl_f=$(command -v sftp-server 2>/dev/null)',
  'if [ -z "$gl_f" ]; then',
  `gl_f=$($gl_sudo sshd -T 2>/dev/null </dev/null | awk '$1 == "subsystem" && $2 == "sftp" { print $3 }')`,
  'case $gl_f in /*) $gl_sudo test -x "$gl_f" 2>/dev/null || gl_f=;; esac; fi',
  // The login shell, which may be of any kind, parses it.
  "case $gl_f in /*) ;; *) gl_f=;; esac; case $gl_f in *[!A-Za-z0-9_./+-]*) gl_f=;; esac",
  'echo "$gl_f"',
].join("\n");

/** Returns the missing privileges for the node. Pure. */
export function missingPrivileges({
  runAs,
  missing,
  sudoNeedsPassword,
}: Pick<Privileges, "runAs" | "missing" | "sudoNeedsPassword">): MissingPrivileges {
  const fileOwner = "the owner of the pod's files cannot be set on the target: graftlet's login is not root there";
  const mount = "volumes cannot be mounted on the target: graftlet's login is not root there";
  return {
    messages: missing,
    ...(sudoNeedsPassword && { sudoNeedsPassword }),
    unsupported: runAs === "user" ? { fileOwner, mount } : {},
  };
}

/** Parses the probe's output. Pure. @throws failed_precondition when lines are missing. */
export function parsePrivileges(output: string, { user, sudo }: Pick<SshConfig, "user" | "sudo">): Privileges {
  const [login, groups, sftpServer, relays, lacking, proc, group, enforce] = output.split("\n");
  const [runAs, asked] = wordsOf(login);
  const sudoNeedsPassword = asked === "password";
  const why = asked === "password" || asked === "terminal" ? asked : undefined;
  if (runAs !== "root" && runAs !== "sudo" && runAs !== "user")
    throw new CodedError("failed_precondition", "the target did not report its user's privileges");
  const found = wordsOf(relays);
  const missing = [
    ...(runAs === "user" ? [noRoot(user, sudo, why)] : []),
    ...(runAs === "sudo" && !found.some((name) => name !== "docker") ? [noRelay(found)] : []),
    ...wordsOf(lacking).map((name) =>
      name === "setsid"
        ? "The target has no setsid program, so stopping a command drops the connection (its SSH server does not give commands their own process groups): install util-linux or busybox."
        : `The target has no ${name} program, which file operations need: install coreutils or busybox.`,
    ),
    ...(proc === "proc"
      ? []
      : [
          "The target does not show /proc to its user: mount it, relax its hidepid, or remove ChrootDirectory from its sshd_config.",
        ]),
  ];
  return {
    runAs,
    groups: wordsOf(groups),
    ...(sftpServer && { sftpServer }),
    relays: relayPrograms.filter((name) => found.includes(name)),
    ...(group === "shared" && !wordsOf(lacking).includes("setsid") && { needsSession: true }),
    ...(enforce === "1" && { enforcesSelinux: true }),
    ...(sudoNeedsPassword && { sudoNeedsPassword }),
    ...(output.split("\n")[9] === "chroot" && { inChroot: true }),
    missing,
  };
}

/** Parses which process serves the probe's connection. Pure. @returns undefined if the target does not show it. */
export function parseServer(output: string): string | undefined {
  const line = output.split("\n")[8] ?? "";
  return /^[1-9]\d{0,9} \d{1,20} [0-9a-f-]{36}$/.test(line) ? line : undefined;
}

function wordsOf(line: string | undefined): string[] {
  return (line ?? "").split(" ").filter((word) => word !== "");
}

function noRelay(found: readonly string[]): string {
  const which = found.length === 0 ? "" : " except Docker's";
  const programs = relayPrograms.filter((name) => name !== "docker").join(", ");
  return `The target has none of ${programs}, so graftlet cannot connect to root's sockets${which}: install one of them.`;
}

/** @param asked what sudo asks for, if that is the reason. */
function noRoot(user: string, sudo: SshConfig["sudo"], asked: "password" | "terminal" | undefined): string {
  const line = asked === "terminal" ? `Defaults:${user} !requiretty` : `${user} ALL=(ALL) NOPASSWD: ALL`;
  const remedy =
    sudo === "never"
      ? "set sudo: auto, or log in as root"
      : `add the line \`${line}\` to its sudoers, or log in as root`;
  const why = asked === undefined ? "" : ` and its sudo asks for a ${asked}`;
  return `User ${user} on the target is not root${why}, so volumes cannot be mounted and cgroups cannot be created: ${remedy}.`;
}
