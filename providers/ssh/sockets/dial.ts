import type { Duplex } from "node:stream";
import type { ClientChannel } from "ssh2";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, abortError, hasCode, messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { isLongSocketPath, maxSocketPathBytes } from "../../../src/lib/socket-path.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { Address, Host } from "../../../src/seams/host.ts";
import { formatAddress } from "../../local/dial.ts";
import { hasErrno } from "../../local/errors.ts";
import { connectionLostError, channelStream } from "../connection/channel-stream.ts";
import { type Connection, channelRefusal, fromCallback } from "../connection/connection.ts";
import type { Link } from "../connection/link.ts";
import type { Privileges } from "../shell/privileges.ts";
import { relayConnection, socketRelayCommand } from "./relay.ts";
import { discardChannel } from "../connection/sessions.ts";
import type { SshProcess } from "../process/spawn.ts";
import { systemError } from "../shell/system-errors.ts";
import type { Argv } from "../../../src/seams/command.ts";

export interface DialerOptions {
  readonly link: Pick<Link, "connection" | "countExchange">;
  readonly spawn: (argv: Argv, signal?: AbortSignal) => Promise<SshProcess>;
  readonly privileges: (signal: AbortSignal) => Promise<Privileges>;
  readonly clock: Clock;
}

const never = new AbortController().signal;
/** Timeout for opening a connection, milliseconds: longer than the kernel's connect timeout, about 130 s. */
const openTimeoutMs = 180_000;
/** Reason code of a refused channel: administratively prohibited (RFC 4254 §5.1). */
const prohibited = 1;

/** Creates `Host.dial`, which opens connections from the target as channels of the link. It uses a relay program instead if sshd
 *  does not allow forwarding, if the socket belongs to root and the login is not root, or if SELinux keeps sshd from the socket. */
export function createDialer({ link, spawn, privileges, clock }: DialerOptions): Host["dial"] {
  /** SSH connections on which sshd has already forwarded to a unix socket. */
  const forwarding = new WeakSet<Connection>();
  const dialByRelay = async (to: Address, signal: AbortSignal, refused: CodedError): Promise<Duplex> => {
    const { relays } = await privileges(signal);
    for (const program of relays) {
      const command = socketRelayCommand(program, to);
      if (!command) continue;
      try {
        return await relayConnection(await spawn(command.argv, signal), command.printsGreeting, { clock, signal });
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "not_found")) continue;
        if (!hasCode(error, "unavailable")) throw error;
        throw error instanceof Error && error.cause ? dialError(to, error.cause) : refused;
      }
    }
    throw refused;
  };
  return async (to, signal = never) => {
    throwIfAborted(signal);
    if ("unix" in to && isLongSocketPath(to.unix)) return dialByRelay(to, signal, pathTooLongError(to.unix));
    const connection = await link.connection(signal);
    try {
      const channel = await openForward(connection, to, clock.within(openTimeoutMs, signal));
      link.countExchange();
      if ("unix" in to) forwarding.add(connection);
      return channelStream(channel, connection);
    } catch (error) {
      throwIfAborted(signal);
      if (connection.lost.aborted) throw connectionLostError(connection.lost);
      if (hasCode(error, "deadline_exceeded")) throw error;
      const refused = dialError(to, error);
      if ("unix" in to) {
        // OpenSSH gives the same answer for prohibited forwarding, a socket without permission, and a missing one.
        const { runAs, enforcesSelinux } = await privileges(signal);
        if (forwarding.has(connection) && runAs !== "sudo" && !enforcesSelinux) throw refused;
      } else if (channelRefusal(error) !== prohibited) throw refused;
      return dialByRelay(to, signal, refused);
    }
  };
}

/** Error for a socket whose path does not fit into a socket address, so that sshd cannot forward to it. */
function pathTooLongError(path: string): CodedError {
  const why = `a socket's path is limited to ${maxSocketPathBytes} bytes; connecting to a longer one needs`;
  return new CodedError("unavailable", `${path}: ${why} python3, perl, socat or nc on the target`);
}

/** Creates the error for a failed connection, as reported by sshd or a relay. Its cause is the system error, if known. */
function dialError(to: Address, error: unknown): CodedError {
  const message = messageOf(error);
  const cause = systemError(message) ?? error;
  return new CodedError(codeOfDial(cause), `${formatAddress(to)}: ${message}`, { cause });
}

/** Maps an error to the two codes of Host.dial. */
function codeOfDial(cause: unknown): "unavailable" | "deadline_exceeded" {
  return hasErrno(cause, "ETIMEDOUT") ? "deadline_exceeded" : "unavailable";
}

function openForward({ client, lost }: Connection, to: Address, signal: AbortSignal): Promise<ClientChannel> {
  if (lost.aborted) throw abortError(lost);
  const channel = fromCallback((done) => {
    if ("unix" in to) client.openssh_forwardOutStreamLocal(to.unix, done);
    else client.forwardOut("127.0.0.1", 0, to.host, to.port, done);
  });
  return untilAborted(untilAborted(channel, lost), signal).catch((error: unknown) => {
    void channel.then(discardChannel, () => undefined);
    throw error;
  });
}
