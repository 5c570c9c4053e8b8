import { once } from "node:events";
import { type AddressInfo, type Server, type Socket, createServer } from "node:net";
import type { Clock, Timer } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { type FairShares, createFairShares } from "../lib/fair-shares.ts";
import { endWhenIdle, joinStreams, keepAlive } from "./join-streams.ts";

export interface DoorDeps {
  /** Opens a connection from the target. */
  readonly dial: Host["dial"];
  /** The pod's address on the target; undefined while it has none. */
  readonly addressOf: (uid: string) => string | undefined;
  /** Cluster address to listen on. */
  readonly own: string;
  /** Concurrent connections of all nodes of the process; this node acquires its own as `nodeName`. */
  readonly connections: FairShares;
  readonly nodeName: string;
  /** Maximum number of concurrent connections of this node, 4,096 by default. A single port gets half of them, and so does a single peer
   *  address, which gets half of a port's. */
  readonly mostConnections?: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A pod's port that is published to the cluster. */
export interface Door {
  readonly uid: string;
  readonly port: number;
}

/** Local ports that forward to ports of pods on the target. */
export interface Doors extends AsyncDisposable {
  /** Returns the local port that forwards to a pod's port, opening it if needed.
   *  @param avoided ports under which the cluster may still know other pods. */
  open(door: Door, avoided: ReadonlySet<number>): Promise<number>;
  /** Closes all other ports: immediately if the pod has lost its address, otherwise after the cluster has had time to see the change.
   *  Established connections continue as long as their pod has its address. */
  keep(doors: readonly Door[]): void;
}

interface Opened extends Door {
  readonly server: Server;
  readonly connections: Set<Socket>;
  /** Runs while the port is no longer wanted. */
  closing?: Timer | undefined;
}

/** Time limit for connecting to a pod, milliseconds. */
const dialMs = 10_000;
/** Time that the cluster's nodes get to see that an endpoint is gone, milliseconds. */
const lingerMs = 10_000;
/** Port range to listen on, fixed so that a NetworkPolicy can name it. */
const firstPort = 20_000;
const portCount = 10_000;

/** Limits a node's connections by local port and by peer address.
 *  @returns acquires a connection and returns its release function, or undefined if a limit is reached. */
function createDoorPlaces({ connections, nodeName, mostConnections = 4_096 }: DoorDeps) {
  const ports = createFairShares(mostConnections, () => connections.acquire(nodeName));
  const peers = createFairShares(mostConnections);
  const peersOfPort = new Map<string, { readonly shares: FairShares; held: number }>();
  return (port: string, peer: string): (() => void) | undefined => {
    const ofPeer = peers.acquire(peer);
    if (!ofPeer) return undefined;
    const own = peersOfPort.get(port) ?? { shares: createFairShares(mostConnections / 2, () => ports.acquire(port)), held: 0 };
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
function createLead(deps: DoorDeps) {
  const warn = createRateLimitedWarning(deps, "cannot forward a connection to a pod on the target");
  const placeFor = createDoorPlaces(deps);
  return async (door: Door, socket: Socket) => {
    const { remoteAddress: peer = "" } = socket;
    const place = placeFor(keyOf(door), peer);
    if (!place) {
      socket.resetAndDestroy();
      return warn({ uid: door.uid, port: door.port, peer, err: "the client has reached its share of connections" });
    }
    const stopIdle = endWhenIdle(socket, deps.clock);
    try {
      const host = deps.addressOf(door.uid);
      if (host === undefined) throw new CodedError("unavailable", "the pod has no address");
      const pod = await deps.dial({ host, port: door.port }, deps.clock.within(dialMs));
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
export function createDoors(deps: DoorDeps): Doors {
  const doors = new Map<string, Opened>();
  const lead = createLead(deps);
  const leaving = new Set<Opened>();
  // A closed port is the last to be reused.
  const turn = { next: 0 };
  let over = false;
  const leave = (key: string, door: Opened) => {
    door.closing?.cancel();
    door.server.close();
    doors.delete(key);
    leaving.add(door);
  };
  const hangUp = (door: Opened) => {
    for (const socket of door.connections) socket.resetAndDestroy();
    leaving.delete(door);
  };
  return {
    async open({ uid, port }, avoided) {
      const key = keyOf({ uid, port });
      const known = doors.get(key);
      if (known) return portOf(known.server);
      const connections = new Set<Socket>();
      const server = await listenNext(deps.own, turn, avoided, (socket) => {
        connections.add(socket);
        socket.once("close", () => connections.delete(socket));
        // Errors are reported where the two connections are joined.
        socket.on("error", () => undefined);
        void lead({ uid, port }, socket);
      });
      const opened = portOf(server);
      const door = { uid, port, server, connections };
      doors.set(key, door);
      if (over) leave(key, door);
      return opened;
    },
    keep(kept) {
      const keys = new Set(kept.map(keyOf));
      for (const [key, door] of doors) {
        if (keys.has(key)) {
          door.closing?.cancel();
          door.closing = undefined;
        } else if (deps.addressOf(door.uid) === undefined) leave(key, door);
        else door.closing ??= deps.clock.after(lingerMs, () => leave(key, door));
      }
      for (const door of leaving)
        if (door.connections.size === 0 || deps.addressOf(door.uid) === undefined) hangUp(door);
    },
    async [Symbol.asyncDispose]() {
      over = true;
      for (const [key, door] of doors) leave(key, door);
      for (const door of leaving) hangUp(door);
    },
  };
}

function keyOf({ uid, port }: Door): string {
  return `${uid}:${port}`;
}

/** Listens on the next free port. An avoided port is used only if no other is free: otherwise anybody who may write EndpointSlices could
 *  block them all. @throws unavailable when no port is free. */
async function listenNext(
  host: string,
  turn: { next: number },
  avoided: ReadonlySet<number>,
  take: (socket: Socket) => void,
): Promise<Server> {
  for (let tries = 0; tries < 2 * portCount; tries += 1) {
    const port = firstPort + (turn.next % portCount);
    turn.next += 1;
    if (tries < portCount && avoided.has(port)) continue;
    const server = createServer({ allowHalfOpen: true, noDelay: true, ...keepAlive }, take);
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

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}
