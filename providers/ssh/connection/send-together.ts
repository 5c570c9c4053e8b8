import type { Duplex } from "node:stream";

/** Has a connection send in one go what a block of input, or another event, leads to: ssh2 writes each packet in three parts, and every part
 *  by itself would be a call of the system and, without delay, a packet on the way. More does not wait together: a window sent in one go
 *  leaves a peer with Nagle's algorithm, whose answer waits for ours, idle.
 *  @returns the same connection. */
export function sendTogether<Connection extends Duplex>(connection: Connection): Connection {
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
