import { abortError, hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { Connection } from "../connection/connection.ts";
import { LinkError } from "../connection/link-state.ts";
import type { Link } from "../connection/link.ts";
import type { Privileges } from "../shell/privileges.ts";
import { type Session, type SessionRequest, type Sessions, discardChannel } from "../connection/sessions.ts";
import { type SftpClient, startSftp } from "./sftp-client.ts";

export interface SftpSessionOptions extends ClockAndLog {
  readonly link: Link;
  readonly sessions: Sessions;
  readonly privileges: (signal: AbortSignal) => Promise<Privileges>;
}

const startTimeoutMs = 15_000;

/** The shared SFTP session of a target. With sudo the SFTP server runs as root in an exec session. A target without SFTP has none until the
 *  next connection. */
export function createSftpSession({ link, sessions, clock, log, privileges }: SftpSessionOptions) {
  let opened: Promise<SftpClient | "none"> | undefined;
  const remember = (opening: Promise<SftpClient | "none">): Promise<SftpClient | "none"> => {
    opened = opening;
    opening.catch(() => {
      if (opened === opening) opened = undefined;
    });
    return opening;
  };
  const reopen = async (): Promise<SftpClient | "none"> => {
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
        if ((await remember(startWith({ open, link, stop }, rights))) === "none")
          log.info({ runAs: rights.runAs }, "the target has no SFTP; reading files through its shell");
      } catch (error) {
        if (signal.aborted) throw abortError(signal);
        throw hasCode(error, "deadline_exceeded") ? brokenSftp(error) : error;
      }
    },
    /** Returns the session, which is reopened if it has ended; undefined if the target has no SFTP.
     *  @throws unavailable, LinkError NoSftp. */
    async get(signal: AbortSignal): Promise<SftpClient | undefined> {
      // A new connection opens its own session.
      await link.connection(signal);
      const before = opened;
      const known =
        before &&
        (await untilAborted(
          before.catch(() => undefined),
          signal,
        ));
      if (known === "none") return undefined;
      if (known?.usable()) return countExchanges(known, link);
      // Another caller may already be reopening the session.
      const opening = opened !== undefined && opened !== before ? opened : remember(reopen());
      const client = await untilAborted(opening, signal);
      return client === "none" ? undefined : countExchanges(client, link);
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

/** Starts sshd's sftp subsystem, or else the server program. @returns "none" if the target has neither.
 *  @throws LinkError NoSftp if one of them starts, but does not speak SFTP. */
async function startWith({ open, link, stop }: Start, { runAs, sftpServer }: Privileges): Promise<SftpClient | "none"> {
  const start = async (how: SessionRequest["start"]): Promise<SftpClient | "none"> => {
    const session = await open(how).catch((error: unknown) => {
      if (hasCode(error, "failed_precondition") && !stop.aborted) return undefined;
      throw error;
    });
    link.countExchange();
    if (!session) return "none";
    try {
      return await startSftp(session, stop);
    } catch (error) {
      discardChannel(session.channel);
      throwIfAborted(stop);
      if (session.connection.lost.aborted) throw error;
      if (hasCode(error, "failed_precondition")) throw brokenSftp(error);
      return "none";
    }
  };
  const subsystem = runAs === "sudo" ? "none" : await start({ subsystem: "sftp" });
  if (subsystem !== "none" || !sftpServer) return subsystem;
  return start({ exec: `exec ${runAs === "sudo" ? "sudo -n " : ""}${sftpServer}` });
}

function brokenSftp(cause: unknown): LinkError {
  const sentence =
    "the target's SFTP does not work: set `Subsystem sftp internal-sftp` in its sshd_config, or make sure that no start-up file of the login shell prints anything or waits.";
  return new LinkError("NoSftp", "failed_precondition", sentence, { cause });
}
