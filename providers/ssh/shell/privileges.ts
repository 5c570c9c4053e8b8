import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, abortError, messageOf } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import type { MissingRights } from "../../../src/seams/provider.ts";
import type { SshConfig } from "../config.ts";
import { type Connection, nameOf } from "../connection/connection.ts";
import { LinkError } from "../connection/link-state.ts";
import type { Link } from "../connection/link.ts";
import { quote } from "./quote.ts";
import { type Session, type Sessions, discard } from "../connection/sessions.ts";
import { startShell } from "./shell.ts";

/** A program that joins its standard streams to a socket; `docker` to an engine's only. */
export type RelayProgram = "python3" | "perl" | "socat" | "nc" | "docker";

/** What the login may do on the target. */
export interface Privileges {
  /** As whom commands run and files are touched: root by login, root by sudo, or the user itself. */
  readonly as: "root" | "sudo" | "user";
  readonly groups: readonly string[];
  /** Where the target has its SFTP server, for when sshd offers none or it must run as root. */
  readonly sftpServer?: string;
  readonly relays: readonly RelayProgram[];
  /** What the target lacks for a whole node, a sentence each with the remedy. */
  readonly missing: readonly string[];
}

export interface PrivilegesOptions {
  readonly config: SshConfig;
  readonly link: Link;
  readonly sessions: Pick<Sessions, "openOn">;
  readonly clock: Clock;
}

/** The command line that starts a shell as the user that is logged in. */
export const plainShell = "exec /bin/sh";
const sudoShell = "exec sudo -n /bin/sh";
/** A login shell that has said nothing for so long, ms, waits for something. */
export const answerWithinMs = 15_000;
/** Whatever a login shell has left running may hold its session open: that is not waited for longer, ms. */
const endWithinMs = 1_000;
const sftpServers = [
  "/usr/lib/openssh/sftp-server",
  "/usr/libexec/openssh/sftp-server",
  "/usr/lib/ssh/sftp-server",
  "/usr/libexec/sftp-server",
  "/usr/lib/sftp-server",
];
const relayPrograms: readonly RelayProgram[] = ["python3", "perl", "socat", "nc", "docker"];

/** What the login may do on the target, as the newest connection has shown it. */
export interface PrivilegesProbe {
  /** Asks on a new connection. The session that it takes is free again when it is done.
   *  @throws LinkError LoginShellHangs, NoPosixShell, NoSessions; what the signal says. */
  ask(connection: Connection, signal: AbortSignal): Promise<Privileges>;
  /** What was last found; waits for the link. @throws unavailable while that is down. */
  known(signal: AbortSignal): Promise<Privileges>;
}

export function createPrivileges({ config, link, sessions, clock }: PrivilegesOptions): PrivilegesProbe {
  let found: Privileges | undefined;
  const question = async (connection: Connection, stop: AbortSignal): Promise<Privileges> => {
    const session = await sessions.openOn(connection, { exec: plainShell }, stop);
    try {
      link.exchanged();
      const shell = await startShell(session, stop);
      link.exchanged();
      const { stdout } = await shell.ask({ script: probeScript(config), maxBytes: 16_384 }, stop);
      link.exchanged();
      await endOf(session, clock.within(endWithinMs, stop));
      return privilegesOf(stdout.toString("latin1"), config);
    } finally {
      discard(session.channel);
    }
  };
  return {
    async ask(connection, signal) {
      const stop = clock.within(answerWithinMs, signal);
      found = await question(connection, stop).catch((error: unknown) => {
        if (signal.aborted) throw abortError(signal);
        if (error instanceof LinkError) throw error;
        throw stop.aborted
          ? shellHangs(config, error)
          : new LinkError("NoPosixShell", "failed_precondition", messageOf(error), { cause: error });
      });
      return found;
    },
    async known(signal) {
      await link.connection(signal);
      if (!found) throw new CodedError("unavailable", "the target has not said what its user may do");
      return found;
    },
  };
}

/** Lets the shell end by itself: until then its place is taken. */
async function endOf({ channel }: Session, stop: AbortSignal): Promise<void> {
  const closed = new Promise<void>((resolve) => void channel.once("close", () => resolve()));
  channel.end();
  await untilAborted(closed, stop).catch(() => undefined);
}

/** What is wrong with a target whose login shell has not answered within `answerWithinMs`, and the remedy. */
export function shellHangs(config: SshConfig, cause: unknown): LinkError {
  return new LinkError(
    "LoginShellHangs",
    "unavailable",
    `the login shell of ${nameOf(config)} does not answer within ${answerWithinMs / 1000} s: look at what its start-up files (~/.bashrc, ~/.profile, ~/.ssh/rc) or sudo wait for, and that /bin/sh is a POSIX shell.`,
    { cause },
  );
}

/** The command line that starts a shell with the rights found. Plain words only: the login shell reads it, which may be any. */
export function shellCommand({ as }: Privileges): string {
  return as === "sudo" ? sudoShell : plainShell;
}

function probeScript({ sudo }: SshConfig): string {
  const trySudo = sudo === "auto" ? "sudo -n /bin/sh -c : >/dev/null 2>&1" : "false";
  return [
    'if [ "$(id -u)" = 0 ]; then echo root',
    `elif ${trySudo}; then echo sudo`,
    "else echo user; fi",
    "id -Gn",
    `for gl_f in ${sftpServers.map(quote).join(" ")} ''; do [ -z "$gl_f" ] || [ -x "$gl_f" ] && break; done; echo "$gl_f"`,
    `for gl_f in ${relayPrograms.join(" ")}; do command -v "$gl_f" >/dev/null 2>&1 && printf '%s ' "$gl_f"; done; echo`,
    "for gl_f in stat readlink awk head dd; do command -v $gl_f >/dev/null 2>&1 || printf '%s ' $gl_f; done; echo",
    "if [ -r /proc/self/mountinfo ]; then echo proc; else echo; fi",
  ].join("\n");
}

/** What a node is told of them. Pure. */
export function missingRights({ as, missing }: Pick<Privileges, "as" | "missing">): MissingRights {
  const fileOwner = "files of the target cannot be given to the pod's user: graftlet's login is not root there";
  const mount = "nothing can be mounted on the target: graftlet's login is not root there";
  return { sentences: missing, lacks: as === "user" ? { fileOwner, mount } : {} };
}

/** Reads the probe's lines. Pure. @throws failed_precondition when they are not there. */
export function privilegesOf(told: string, { user, sudo }: Pick<SshConfig, "user" | "sudo">): Privileges {
  const [as, groups, sftpServer, relays, lacking, proc] = told.split("\n");
  if (as !== "root" && as !== "sudo" && as !== "user")
    throw new CodedError("failed_precondition", "the target did not say what its user may do");
  const found = wordsOf(relays);
  const missing = [
    ...(as === "user" ? [noRoot(user, sudo)] : []),
    ...(as === "sudo" && !found.some((name) => name !== "docker") ? [noRelay(found)] : []),
    ...wordsOf(lacking).map(
      (name) => `The target has no ${name} program, which files need: install coreutils or busybox.`,
    ),
    ...(proc === "proc" ? [] : ["The target does not show /proc to its user: mount it, or relax its hidepid."]),
  ];
  return {
    as,
    groups: wordsOf(groups),
    ...(sftpServer && { sftpServer }),
    relays: relayPrograms.filter((name) => found.includes(name)),
    missing,
  };
}

function wordsOf(line: string | undefined): string[] {
  return (line ?? "").split(" ").filter((word) => word !== "");
}

function noRelay(found: readonly string[]): string {
  const which = found.length === 0 ? "" : " but Docker's";
  const programs = relayPrograms.filter((name) => name !== "docker").join(", ");
  return `The target has none of ${programs}, so root's sockets${which} are out of reach: install one of them.`;
}

function noRoot(user: string, sudo: SshConfig["sudo"]): string {
  const remedy =
    sudo === "never"
      ? "set sudo: auto, or log in as root"
      : `add the line \`${user} ALL=(ALL) NOPASSWD: ALL\` to its sudoers, or log in as root`;
  return `User ${user} of the target is not root, so nothing can be mounted and no cgroup be made: ${remedy}.`;
}
