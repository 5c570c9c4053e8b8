import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, codeOf, hasCode, throwIfAborted } from "../../src/lib/errors.ts";
import { type Link, unlessAborted } from "./link.ts";
import type { Privileges } from "./privileges.ts";
import { type Session, type Sessions, discard } from "./sessions.ts";
import { type SftpClient, startSftp } from "./sftp-client.ts";

export interface SftpSessionOptions {
  readonly link: Link;
  readonly sessions: Sessions;
  readonly clock: Clock;
  readonly privileges: (signal: AbortSignal) => Promise<Privileges>;
}

const startTimeoutMs = 20_000;

/** The target's SFTP session: opened when first asked for, shared, and opened anew when it has ended. With sudo the SFTP server
 *  runs as root on a session for commands.
 *  @returns what gives it; throws failed_precondition where the target has no SFTP server, a sentence with the remedy. */
export function createSftpSession(options: SftpSessionOptions): (signal: AbortSignal) => Promise<SftpClient> {
  const { link } = options;
  let opened: Promise<SftpClient> | undefined;
  return async (signal) => {
    throwIfAborted(signal);
    const before = opened;
    const known = await before?.catch(() => undefined);
    if (known?.usable()) return counted(known, link);
    // Another caller may have replaced it meanwhile.
    if (opened === before) opened = open(options);
    const opening = (opened ??= open(options));
    opening.catch(() => {
      if (opened === opening) opened = undefined;
    });
    return counted(await unlessAborted(opening, signal), link);
  };
}

/** Requests sent together count as one exchange. */
function counted(client: SftpClient, link: Link): SftpClient {
  return {
    ...client,
    exchange(requests, signal) {
      link.exchanged();
      return client.exchange(requests, signal);
    },
  };
}

async function open({ sessions, clock, privileges, link }: SftpSessionOptions): Promise<SftpClient> {
  const signal = clock.within(startTimeoutMs);
  const { as, sftpServer } = await privileges(signal);
  const exec = sftpServer === undefined ? undefined : `exec ${as === "sudo" ? "sudo -n " : ""}${sftpServer}`;
  const start = async (session: Session): Promise<SftpClient> => {
    link.exchanged();
    try {
      return await startSftp(session, signal);
    } catch (error) {
      discard(session.channel);
      throw error;
    }
  };
  try {
    if (as !== "sudo") return await start(await sessions.open({ start: { subsystem: "sftp" }, signal }));
  } catch (error) {
    if (exec === undefined || (hasCode(error, "unavailable") && link.state().is !== "up")) throw noSftp(error);
  }
  if (exec === undefined) throw noSftp();
  return start(await sessions.open({ start: { exec }, signal }));
}

function noSftp(cause?: unknown): CodedError {
  if (codeOf(cause) === "deadline_exceeded") return cause as CodedError;
  return new CodedError(
    "failed_precondition",
    "the target offers no SFTP: add `Subsystem sftp internal-sftp` to its sshd_config, or install OpenSSH's sftp-server.",
    { cause },
  );
}
