import type { Duplex } from "node:stream";
import type { ClientChannel } from "ssh2";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, abortError, hasCode, messageOf, throwIfAborted } from "../../src/lib/errors.ts";
import type { Address, Host } from "../../src/seams/host.ts";
import { brokenBy, channelStream } from "./channel-stream.ts";
import { type Connection, channelRefusal, opened } from "./connection.ts";
import { type Link, unlessAborted } from "./link.ts";
import type { Privileges } from "./privileges.ts";
import { connectionOf, relayCommand } from "./relay.ts";
import { discard } from "./sessions.ts";
import type { SshProcess } from "./spawn.ts";

export interface DialerOptions {
  readonly link: Link;
  readonly spawn: (argv: readonly string[], signal?: AbortSignal) => Promise<SshProcess>;
  readonly privileges: (signal: AbortSignal) => Promise<Privileges>;
  readonly clock: Clock;
}

const never = new AbortController().signal;
/** RFC 4254 §5.1: administratively prohibited. */
const prohibited = 1;

/** Connections from the target, as channels of the link; by a program on the target where sshd forwards nothing, or where the
 *  socket is root's and the login is not. @see Host.dial */
export function createDialer({ link, spawn, privileges, clock }: DialerOptions): Host["dial"] {
  let unixForwarded = false;
  const relayed = async (to: Address, signal: AbortSignal, refused: CodedError): Promise<Duplex> => {
    const { relays } = await privileges(signal);
    for (const program of relays) {
      const command = relayCommand(program, to);
      if (!command) continue;
      try {
        return await connectionOf(await spawn(command.argv, signal), command.greets, { clock, signal });
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "unavailable")) throw refused;
        if (!hasCode(error, "not_found")) throw error;
      }
    }
    throw refused;
  };
  return async (to, signal = never) => {
    throwIfAborted(signal);
    const connection = await link.connection(signal);
    try {
      const channel = await openForward(connection, to, signal);
      link.exchanged();
      if ("unix" in to) unixForwarded = true;
      return channelStream(channel, connection.lost);
    } catch (error) {
      throwIfAborted(signal);
      if (connection.lost.aborted) throw brokenBy(connection.lost);
      const refused = new CodedError("unavailable", `${nameOfAddress(to)}: ${messageOf(error)}`, { cause: error });
      if ("unix" in to) {
        // OpenSSH gives one answer for a forwarding that is not allowed, a socket that is another's, and one that is not there.
        const certain = unixForwarded && (await privileges(signal)).as !== "sudo";
        if (certain) throw refused;
      } else if (channelRefusal(error) !== prohibited) throw refused;
      return relayed(to, signal, refused);
    }
  };
}

function openForward({ client, lost }: Connection, to: Address, signal: AbortSignal): Promise<ClientChannel> {
  if (lost.aborted) throw abortError(lost);
  const channel = opened((done) => {
    if ("unix" in to) client.openssh_forwardOutStreamLocal(to.unix, done);
    else client.forwardOut("127.0.0.1", 0, to.host, to.port, done);
  });
  return unlessAborted(channel, signal).catch((error: unknown) => {
    void channel.then(discard, () => undefined);
    throw error;
  });
}

/** An address as messages name it. */
export function nameOfAddress(address: Address): string {
  return "unix" in address ? address.unix : `${address.host}:${address.port}`;
}
