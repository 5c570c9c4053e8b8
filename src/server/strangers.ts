import type { Socket } from "node:net";

/** Connections of whom nothing is known: of peers that have shown no client certificate of the cluster and have not been allowed
 *  anything yet. There are so many at most: of the address with the most of them the oldest is closed for a new one, so that whoever
 *  opens many loses those, and one that says who it is gets in. */
export interface Strangers {
  /** A connection has come; it is a stranger's until it closes, or is known. */
  accept(socket: Socket): void;
  /** The peer is somebody.
   *  @param socket the connection, or the TLS upon it. */
  known(socket: Socket): void;
}

export interface StrangersOptions {
  /** Connections of strangers. */
  readonly most: number;
  /** Connections that are known: further ones stay strangers'. */
  readonly mostKnown: number;
}

/** For a process, all of its nodes together: their heads, of 64 KiB each, are 32 MiB. */
export const processConnections: StrangersOptions = { most: 512, mostKnown: 4096 };

export function createStrangers({ most, mostKnown }: StrangersOptions): Strangers {
  const byAddress = new Map<string, Map<string, Socket>>();
  const known = new Set<string>();
  let size = 0;
  const remove = (address: string, id: string): boolean => {
    const own = byAddress.get(address);
    if (!own?.delete(id)) return false;
    size -= 1;
    if (own.size === 0) byAddress.delete(address);
    return true;
  };
  const closeOne = () => {
    const [first] = [...byAddress.values()].toSorted((one, other) => other.size - one.size);
    const [oldest] = first?.values() ?? [];
    oldest?.destroy();
  };
  return {
    accept(socket) {
      const { remoteAddress: address = "" } = socket;
      const id = idOf(socket);
      const own = byAddress.get(address) ?? new Map<string, Socket>();
      byAddress.set(address, own.set(id, socket));
      size += 1;
      socket.once("close", () => {
        remove(address, id);
        known.delete(id);
      });
      if (size > most) closeOne();
    },
    known(socket) {
      const id = idOf(socket);
      if (known.size < mostKnown && remove(socket.remoteAddress ?? "", id)) known.add(id);
    },
  };
}

/** Key that a connection and the TLS upon it have in common, and no other open connection has. */
function idOf({ localAddress, localPort, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${localPort} ${remoteAddress} ${remotePort}`;
}
