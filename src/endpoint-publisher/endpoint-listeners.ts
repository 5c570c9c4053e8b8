import { once } from "node:events";
import { type AddressInfo, type Server, type Socket, createServer } from "node:net";
import type { Timer } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { type FairShares, createFairShares } from "../lib/fair-shares.ts";
import { endWhenIdle, joinStreams, tcpKeepAlive } from "../lib/join-streams.ts";

export interface EndpointListenersDeps extends ClockAndLog {
  /** Opens a connection from the target. */
  readonly dial: Host["dial"];
  /** The pod's address on the target; undefined while the pod has no address. */
  readonly podAddress: (uid: string) => string | undefined;
  /** Cluster address to listen on. */
  readonly listenAddress: string;
  /** Concurrent connections of all nodes of the process; this node acquires its own as `nodeName`. */
  readonly connections: FairShares;
  readonly nodeName: string;
  /** Maximum number of concurrent connections of this node, 4,096 by default. They are divided by fair shares between ports and
   *  between peer addresses: a single port or peer address gets at most half of them, and a peer address at most half of a port's
   *  share. */
  readonly maxConnections?: number;
}

/** A pod's port that is published to the cluster. */
export interface PublishedPort {
  readonly uid: string;
  readonly port: number;
}

/** Manages local ports that forward to ports of pods on the target. */
export type EndpointListeners = ReturnType<typeof createEndpointListeners>;

interface OpenPort extends PublishedPort {
  readonly server: Server;
  readonly connections: Set<Socket>;
  /** Timer that closes the port; set once the port is no longer wanted. */
  closing?: Timer | undefined;
}

/** Time limit for connecting to a pod, milliseconds. */
const dialTimeoutMs = 10_000;
/** Time for the cluster's nodes to notice that an endpoint is gone, milliseconds. */
const closeDelayMs = 10_000;
/** Port range to listen on, fixed so that a NetworkPolicy can name it. */
const firstPort = 20_000;
const portCount = 10_000;

/** Limits a node's connections by local port and by peer address.
 *  @returns acquires a connection and returns its release function, or undefined if a limit is reached. */
function createConnectionLimits({ connections, nodeName, maxConnections = 4_096 }: EndpointListenersDeps) {
  const ports = createFairShares(maxConnections, () => connections.acquire(nodeName));
  const peers = createFairShares(maxConnections);
  const peersOfPort = new Map<string, { readonly shares: FairShares; held: number }>();
  return (port: string, peer: string): (() => void) | undefined => {
    const ofPeer = peers.acquire(peer);
    if (!ofPeer) return undefined;
    const own = peersOfPort.get(port) ?? {
      shares: createFairShares(maxConnections / 2, () => ports.acquire(port)),
      held: 0,
    };
    const place = own.shares.acquire(peer);
    if (!place) {
      ofPeer();
      return undefined;
    }
    own.held += 1;
    peersOfPort.set(port, own);
    return () => {
      place();
      ofPeer();
      own.held -= 1;
      if (own.held === 0) peersOfPort.delete(port);
    };
  };
}

/** Connects a client to the pod's port. */
function createForwarder(deps: EndpointListenersDeps) {
  const warn = createRateLimitedWarning(deps, "cannot forward a connection to a pod on the target");
  const placeFor = createConnectionLimits(deps);
  return async (door: PublishedPort, socket: Socket) => {
    const { remoteAddress: peer = "" } = socket;
    const place = placeFor(publishedPortKey(door), peer);
    if (!place) {
      socket.resetAndDestroy();
      return warn({ uid: door.uid, port: door.port, peer, err: "the client has reached its limit of connections" });
    }
    const stopIdle = endWhenIdle(socket, deps.clock);
    try {
      const host = deps.podAddress(door.uid);
      if (host === undefined) throw new CodedError("unavailable", "the pod has no address");
      const pod = await deps.dial({ host, port: door.port }, deps.clock.within(dialTimeoutMs));
      if (socket.destroyed) return void pod.destroy();
      await joinStreams(socket, pod).catch(() => socket.resetAndDestroy());
    } catch (err) {
      socket.resetAndDestroy();
      warn({ uid: door.uid, port: door.port, peer, err });
    } finally {
      stopIdle();
      place();
    }
  };
}

/** Forwards connections to pods on the target, each over the link. If the pod refuses a connection, the client's is reset. */
export function createEndpointListeners(deps: EndpointListenersDeps) {
  const listeners = new Map<string, OpenPort>();
  const forward = createForwarder(deps);
  const draining = new Set<OpenPort>();
  // A closed port is the last to be reused.
  const turn = { next: 0 };
  let over = false;
  const stopListening = (key: string, door: OpenPort) => {
    door.closing?.cancel();
    door.server.close();
    listeners.delete(key);
    draining.add(door);
  };
  const resetConnections = (door: OpenPort) => {
    for (const socket of door.connections) socket.resetAndDestroy();
    draining.delete(door);
  };
  return {
    /** Returns the local port that forwards to a pod's port, opening it if needed.
     *  @param avoided ports under which the cluster may still know other pods. */
    async open({ uid, port }: PublishedPort, avoided: ReadonlySet<number>): Promise<number> {
      const key = publishedPortKey({ uid, port });
      const known = listeners.get(key);
      if (known) return listeningPort(known.server);
      const connections = new Set<Socket>();
      const server = await listenNext(deps.listenAddress, turn, avoided, (socket) => {
        connections.add(socket);
        socket.once("close", () => connections.delete(socket));
        // Errors are reported where the two connections are joined.
        socket.on("error", () => undefined);
        void forward({ uid, port }, socket);
      });
      const opened = listeningPort(server);
      const door = { uid, port, server, connections };
      listeners.set(key, door);
      if (over) stopListening(key, door);
      return opened;
    },
    /** Closes all other ports: immediately if the pod has lost its address, otherwise after the cluster has had time to see the change.
     *  Established connections continue as long as their pod has its address. */
    closeExcept(kept: readonly PublishedPort[]): void {
      const keys = new Set(kept.map(publishedPortKey));
      for (const [key, door] of listeners) {
        if (keys.has(key)) {
          door.closing?.cancel();
          door.closing = undefined;
        } else if (deps.podAddress(door.uid) === undefined) stopListening(key, door);
        else door.closing ??= deps.clock.after(closeDelayMs, () => stopListening(key, door));
      }
      for (const door of draining)
        if (door.connections.size === 0 || deps.podAddress(door.uid) === undefined) resetConnections(door);
    },
    async [Symbol.asyncDispose]() {
      over = true;
      for (const [key, door] of listeners) stopListening(key, door);
      for (const door of draining) resetConnections(door);
    },
  };
}

function publishedPortKey({ uid, port }: PublishedPort): string {
  return `${uid}:${port}`;
}

/** Listens on the next free port. An avoided port is used only if no other is free: otherwise anyone with write access to
 *  EndpointSlices could block all ports. @throws unavailable when no port is free. */
async function listenNext(
  host: string,
  turn: { next: number },
  avoided: ReadonlySet<number>,
  onConnection: (socket: Socket) => void,
): Promise<Server> {
  for (let tries = 0; tries < 2 * portCount; tries += 1) {
    const port = firstPort + (turn.next % portCount);
    turn.next += 1;
    if (tries < portCount && avoided.has(port)) continue;
    const server = createServer({ allowHalfOpen: true, noDelay: true, ...tcpKeepAlive }, onConnection);
    try {
      server.listen({ host, port });
      await once(server, "listening");
      // For example too many open files: pending clients are accepted later.
      server.on("error", () => undefined);
      return server;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    }
  }
  throw new CodedError(
    "unavailable",
    `no port from ${firstPort} to ${firstPort + portCount - 1} is free for published pods`,
  );
}

function listeningPort(server: Server): number {
  return (server.address() as AddressInfo).port;
}
