import type { Duplex } from "node:stream";

/** Coalesces all writes of one event-loop turn into one: ssh2 writes each packet in three parts, and each part would be a system call and,
 *  with TCP_NODELAY, a TCP segment. Writes are not delayed beyond the turn: batching a whole window would leave a peer with Nagle's algorithm
 *  idle while it waits for our acknowledgement.
 *  @returns the same connection. */
export function coalesceWrites<Connection extends Duplex>(connection: Connection): Connection {
  const write = connection.write.bind(connection) as (...args: unknown[]) => boolean;
  const flush = () => connection.uncork();
  connection.write = (...args: unknown[]) => {
    if (connection.writableCorked === 0) {
      connection.cork();
      process.nextTick(flush);
    }
    return write(...args);
  };
  return connection;
}
