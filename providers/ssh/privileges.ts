import type { Clock } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { MissingRights } from "../../src/seams/provider.ts";
import type { SshConfig } from "./config.ts";
import { type Link, unlessAborted } from "./link.ts";
import { quote } from "./quote.ts";
import { type Sessions, discard } from "./sessions.ts";
import { startShell } from "./shell.ts";

/** A program that joins its standard streams to a socket. */
export type RelayProgram = "python3" | "perl" | "socat" | "nc";

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
  readonly sessions: Sessions;
  readonly clock: Clock;
}

const plainShell = "exec /bin/sh";
const sudoShell = "exec sudo -n /bin/sh";
const probeTimeoutMs = 20_000;
const sftpServers = [
  "/usr/lib/openssh/sftp-server",
  "/usr/libexec/openssh/sftp-server",
  "/usr/lib/ssh/sftp-server",
  "/usr/libexec/sftp-server",
  "/usr/lib/sftp-server",
];
const relayPrograms: readonly RelayProgram[] = ["python3", "perl", "socat", "nc"];

/** Finds out what the login may do: asked once for as long as the link is up.
 *  @returns the question; it throws unavailable, failed_precondition when the target gives no shell. */
export function createPrivileges(options: PrivilegesOptions): (signal: AbortSignal) => Promise<Privileges> {
  let known: Promise<Privileges> | undefined;
  options.link.onChange(({ is }) => {
    if (is === "down") known = undefined;
  });
  return (signal) => {
    if (known) return unlessAborted(known, signal);
    const asked = probe(options);
    known = asked;
    asked.catch(() => {
      if (known === asked) known = undefined;
    });
    return unlessAborted(asked, signal);
  };
}

/** The command line that starts a shell with the rights found. Plain words only: the login shell reads it, which may be any. */
export function shellCommand({ as }: Privileges): string {
  return as === "sudo" ? sudoShell : plainShell;
}

async function probe({ config, link, sessions, clock }: PrivilegesOptions): Promise<Privileges> {
  const stop = clock.within(probeTimeoutMs);
  const session = await sessions.open({ start: { exec: plainShell }, signal: stop });
  try {
    link.exchanged();
    const shell = await startShell(session, stop);
    link.exchanged();
    const { stdout } = await shell.ask({ script: probeScript(config), maxBytes: 16_384 }, stop);
    return privilegesOf(stdout.toString("latin1"), config);
  } finally {
    discard(session.channel);
  }
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
  return { sentences: missing, lacks: as === "user" ? { fileOwner } : {} };
}

/** Reads the probe's lines. Pure. @throws failed_precondition when they are not there. */
export function privilegesOf(told: string, { user, sudo }: Pick<SshConfig, "user" | "sudo">): Privileges {
  const [as, groups, sftpServer, relays, lacking, proc] = told.split("\n");
  if (as !== "root" && as !== "sudo" && as !== "user")
    throw new CodedError("failed_precondition", "the target did not say what its user may do");
  const found = wordsOf(relays);
  const missing = [
    ...(as === "user" ? [noRoot(user, sudo)] : []),
    ...(as === "sudo" && found.length === 0
      ? [`The target has none of ${relayPrograms.join(", ")}, so root's sockets are out of reach: install one of them.`]
      : []),
    ...(as === "sudo" && !sftpServer
      ? ["The target has no sftp-server program, so files cannot be opened as root: install OpenSSH's SFTP server."]
      : []),
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

function noRoot(user: string, sudo: SshConfig["sudo"]): string {
  const remedy =
    sudo === "never"
      ? "set sudo: auto, or log in as root"
      : `add the line \`${user} ALL=(ALL) NOPASSWD: ALL\` to its sudoers, or log in as root`;
  return `User ${user} of the target is not root, so nothing can be mounted and no cgroup be made: ${remedy}.`;
}
