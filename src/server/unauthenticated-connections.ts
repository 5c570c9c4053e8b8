import type { Socket } from "node:net";

/** Connections of unauthorized clients: they have presented no client certificate of the cluster and have not been authorized yet. Their
 *  number is limited. A new one closes the oldest of the address with the most, so that an address with many connections loses those, and
 *  a client with credentials is admitted. */
export type UnauthenticatedConnections = ReturnType<typeof createUnauthenticatedConnections>;

export interface ConnectionLimits {
  readonly maxUnauthenticated: number;
  /** Maximum number of recorded authorized connections; beyond it, further ones stay counted as unauthorized. */
  readonly maxAuthenticated: number;
}

/** Limits of the process, for all of its nodes: headers of 64 KiB for each connection take up to 32 MiB. */
export const processConnectionLimits: ConnectionLimits = { maxUnauthenticated: 512, maxAuthenticated: 4096 };

export function createUnauthenticatedConnections({ maxUnauthenticated, maxAuthenticated }: ConnectionLimits) {
  const byAddress = new Map<string, Map<string, Socket>>();
  const authenticated = new Set<string>();
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
    /** Adds a new connection, until it closes or is authorized. */
    accept(socket: Socket): void {
      const { remoteAddress: address = "" } = socket;
      const id = idOf(socket);
      const own = byAddress.get(address) ?? new Map<string, Socket>();
      byAddress.set(address, own.set(id, socket));
      size += 1;
      socket.once("close", () => {
        remove(address, id);
        authenticated.delete(id);
      });
      if (size > maxUnauthenticated) closeOne();
    },
    /** The client is authorized. @param socket the connection, or TLS on top of it. */
    authenticated(socket: Socket): void {
      const id = idOf(socket);
      if (authenticated.size < maxAuthenticated && remove(socket.remoteAddress ?? "", id)) authenticated.add(id);
    },
  };
}

/** Key shared by a connection and TLS on top of it, unique among open connections. */
function idOf({ localAddress, localPort, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${localPort} ${remoteAddress} ${remotePort}`;
}
