import { once } from "node:events";
import { type Socket, connect } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import { destinationOf } from "./destinations.ts";
import { joinStreams } from "./join-streams.ts";

export interface JoinerDeps {
  /** True for a destination, `address:port`, that this node's pods may reach. */
  readonly allowed: (to: string) => boolean;
  /** Told of a connection that was refused, with the reason. */
  readonly refused: (fields: { readonly to: string; readonly err: unknown }) => void;
  readonly clock: Pick<Clock, "within">;
  /** Opens a connection from graftlet's own network; Node's by default. */
  readonly dial?: (to: { readonly host: string; readonly port: number }) => Socket;
}

/** Bytes of the line before a connection's own. */
const longestHeader = 64;
/** Time for the destination to answer, milliseconds. */
const dialMs = 10_000;
const joined = Buffer.from("+");

const dialTcp = ({ host, port }: { readonly host: string; readonly port: number }) =>
  connect({ host, port, allowHalfOpen: true, noDelay: true });

/** Joins connections that come over the link to their destinations in the cluster. Each begins with a line: where it comes from, and
 *  where it is meant to go. Both ends wait for each other; what breaks one breaks the other. */
export function createJoiner({
  allowed,
  refused,
  clock,
  dial = dialTcp,
}: JoinerDeps): (connection: Duplex) => Promise<void> {
  return async (connection) => {
    let to = "?";
    // It closes then, which ends what is joined to it.
    connection.on("error", () => undefined);
    try {
      const line = await headerOf(connection);
      const [, , host = "", port = ""] = line.split(" ");
      to = `${host}:${port}`;
      const destination = destinationOf(to);
      if (!destination || !allowed(to)) throw new CodedError("permission_denied", "no destination of this node's pods");
      const socket = await connected(dial(destination), clock.within(dialMs));
      connection.write(joined);
      await joinStreams(connection, socket);
    } catch (err) {
      connection.destroy();
      if (err instanceof CodedError) refused({ to, err });
    }
  };
}

/** Opens a connection from graftlet's own network. @throws unavailable when there is none, or the signal aborts. */
export function connectTo(to: { readonly host: string; readonly port: number }, soon: AbortSignal): Promise<Socket> {
  return connected(dialTcp(to), soon);
}

async function connected(socket: Socket, soon: AbortSignal): Promise<Socket> {
  try {
    await once(socket, "connect", { signal: soon });
    return socket;
  } catch (cause) {
    socket.destroy();
    const why = soon.aborted ? `no answer within ${dialMs} ms` : messageOf(cause);
    throw new CodedError("unavailable", why, { cause });
  }
}

/** Reads the first line, and leaves the rest to be read. */
async function headerOf(connection: Duplex): Promise<string> {
  let head = Buffer.alloc(0);
  for (;;) {
    const chunk = connection.read() as Buffer | null;
    if (chunk === null) {
      if (connection.readableEnded || connection.destroyed) throw new CodedError("unavailable", "it ended at once");
      await new Promise<void>((resolve) => {
        const on = () => {
          for (const name of ["readable", "end", "close"]) connection.off(name, on);
          resolve();
        };
        for (const name of ["readable", "end", "close"]) connection.on(name, on);
      });
      continue;
    }
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf("\n");
    if (end >= 0) {
      if (end + 1 < head.length) connection.unshift(head.subarray(end + 1));
      return head.subarray(0, end).toString("latin1");
    }
    if (head.length > longestHeader) throw new CodedError("invalid_argument", "its first line is too long");
  }
}
