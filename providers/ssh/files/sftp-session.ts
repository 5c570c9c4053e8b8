import type { Clock } from "../../../src/lib/clock.ts";
import { abortError, hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { Connection } from "../connection/connection.ts";
import { LinkError } from "../connection/link-state.ts";
import type { Link } from "../connection/link.ts";
import type { Privileges } from "../shell/privileges.ts";
import { type Session, type SessionRequest, type Sessions, discardChannel } from "../connection/sessions.ts";
import { type SftpClient, startSftp } from "./sftp-client.ts";

export interface SftpSessionOptions {
  readonly link: Link;
  readonly sessions: Sessions;
  readonly clock: Clock;
  readonly privileges: (signal: AbortSignal) => Promise<Privileges>;
}

const startTimeoutMs = 15_000;

/** The shared SFTP session of a target. With sudo the SFTP server runs as root in an exec session. */
export function createSftpSession({ link, sessions, clock, privileges }: SftpSessionOptions) {
  let opened: Promise<SftpClient> | undefined;
  const remember = (opening: Promise<SftpClient>): Promise<SftpClient> => {
    opened = opening;
    opening.catch(() => {
      if (opened === opening) opened = undefined;
    });
    return opening;
  };
  const reopen = async (): Promise<SftpClient> => {
    const stop = clock.within(startTimeoutMs);
    const open = (start: SessionRequest["start"]) => sessions.open({ start, signal: stop });
    return startWith({ open, link, stop }, await privileges(stop));
  };
  return {
    /** Opens the session on a new connection. @throws LinkError NoSftp, a sentence with the remedy; the signal's reason. */
    async openOn(connection: Connection, rights: Privileges, signal: AbortSignal): Promise<void> {
      const stop = clock.within(startTimeoutMs, signal);
      const open = (start: SessionRequest["start"]) => sessions.openOn(connection, start, stop);
      try {
        await remember(startWith({ open, link, stop }, rights));
      } catch (error) {
        if (signal.aborted) throw abortError(signal);
        throw hasCode(error, "deadline_exceeded") ? noSftp(rights, error) : error;
      }
    },
    /** Returns the session, which is reopened if it has ended. @throws unavailable, LinkError NoSftp. */
    async get(signal: AbortSignal): Promise<SftpClient> {
      // A new connection opens its own session.
      await link.connection(signal);
      const before = opened;
      const known =
        before &&
        (await untilAborted(
          before.catch(() => undefined),
          signal,
        ));
      if (known?.usable()) return countExchanges(known, link);
      // Another caller may already be reopening the session.
      const opening = opened !== undefined && opened !== before ? opened : remember(reopen());
      return countExchanges(await untilAborted(opening, signal), link);
    },
  };
}

/** Counts each batch of requests as one exchange. */
function countExchanges(client: SftpClient, link: Link): SftpClient {
  return {
    ...client,
    exchange(requests, signal) {
      link.countExchange();
      return client.exchange(requests, signal);
    },
  };
}

interface Start {
  readonly open: (start: SessionRequest["start"]) => Promise<Session>;
  readonly link: Link;
  readonly stop: AbortSignal;
}

/** Starts sshd's sftp subsystem, or else the server program. */
async function startWith({ open, link, stop }: Start, rights: Privileges): Promise<SftpClient> {
  const start = async (how: SessionRequest["start"]): Promise<SftpClient> => {
    const session = await open(how);
    link.countExchange();
    try {
      return await startSftp(session, stop);
    } catch (error) {
      discardChannel(session.channel);
      throwIfAborted(stop);
      throw session.connection.lost.aborted ? error : noSftp(rights, error);
    }
  };
  const { runAs, sftpServer } = rights;
  const program = sftpServer && { exec: `exec ${runAs === "sudo" ? "sudo -n " : ""}${sftpServer}` };
  if (runAs === "sudo") {
    if (program) return start(program);
    throw noSftp(rights);
  }
  try {
    return await start({ subsystem: "sftp" });
  } catch (error) {
    const offered = !hasCode(error, "failed_precondition");
    if (offered) throw error;
    if (!program) throw noSftp(rights, error);
  }
  return start(program);
}

function noSftp({ runAs, sftpServer }: Privileges, cause?: unknown): LinkError {
  const sentence =
    runAs === "sudo" && !sftpServer
      ? "the target has no sftp-server program, so files cannot be opened as root: install OpenSSH's SFTP server (openssh-sftp-server)."
      : "the target offers no SFTP: add `Subsystem sftp internal-sftp` to its sshd_config, or install OpenSSH's sftp-server, and make sure that no start-up file of the login shell prints anything.";
  return new LinkError("NoSftp", "failed_precondition", sentence, { cause });
}
