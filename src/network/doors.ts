import { once } from "node:events";
import { type AddressInfo, type Server, type Socket, createServer } from "node:net";
import type { Clock, Timer } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { createLimitedWarning } from "../lib/limited-warning.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { type Shares, createShares } from "../lib/shares.ts";
import { endWhenIdle, joinStreams, keepAlive } from "./join-streams.ts";

export interface DoorDeps {
  /** Opens a connection from the target. */
  readonly dial: Host["dial"];
  /** The address that the pod has on the target; undefined while it has none. */
  readonly addressOf: (uid: string) => string | undefined;
  /** Address in the cluster to listen at. */
  readonly own: string;
  /** Connections at once of all nodes of the process; those of this node take theirs as `nodeName`. */
  readonly connections: Shares;
  readonly nodeName: string;
  /** Connections at once of this node; 4,096 unless given. A port gets half of them by itself, and so does an address that connects, which
   *  gets half of a port's. */
  readonly mostConnections?: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A port of a pod. */
export interface Door {
  readonly uid: string;
  readonly port: number;
}

/** Ports here that lead to ports of pods on the target. */
export interface Doors extends AsyncDisposable {
  /** The port here that leads to a pod's, opened where it is not yet.
   *  @param avoided ports under which others may still be known. */
  open(door: Door, avoided: ReadonlySet<number>): Promise<number>;
  /** Closes all but these: at once where the pod has lost its address, else once the cluster has had time to hear of it. Connections go
   *  on as long as their pod has its address. */
  keep(doors: readonly Door[]): void;
}

interface Opened extends Door {
  readonly server: Server;
  readonly connections: Set<Socket>;
  /** Runs while nobody wants it. */
  closing?: Timer | undefined;
}

/** Time for a pod to take a connection, milliseconds. */
const dialMs = 10_000;
/** Time for the cluster's nodes to hear that an endpoint is gone, milliseconds. */
const lingerMs = 10_000;
/** Ports to listen at: a range that a NetworkPolicy can name. */
const firstPort = 20_000;
const portCount = 10_000;

/** Counts a node's connections by the port that they come to, and by who connects.
 *  @returns takes a place, and says how to give it back; undefined for one too many. */
function createDoorPlaces({ connections, nodeName, mostConnections = 4_096 }: DoorDeps) {
  const ports = createShares(mostConnections, () => connections.take(nodeName));
  const peers = createShares(mostConnections);
  const peersOfPort = new Map<string, { readonly shares: Shares; held: number }>();
  return (port: string, peer: string): (() => void) | undefined => {
    const ofPeer = peers.take(peer);
    if (!ofPeer) return undefined;
    const own = peersOfPort.get(port) ?? { shares: createShares(mostConnections / 2, () => ports.take(port)), held: 0 };
    const place = own.shares.take(peer);
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

/** Joins a connection to the pod's port that its door leads to. */
function createLead(deps: DoorDeps) {
  const warn = createLimitedWarning(deps, "a connection to a pod of the target failed");
  const placeFor = createDoorPlaces(deps);
  return async (door: Door, socket: Socket) => {
    const { remoteAddress: peer = "" } = socket;
    const place = placeFor(keyOf(door), peer);
    if (!place) {
      socket.resetAndDestroy();
      return warn({ uid: door.uid, port: door.port, peer, err: "it has its share of connections open" });
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

/** Leads connections to pods on the target, each over the link. What a pod refuses is reset. */
export function createDoors(deps: DoorDeps): Doors {
  const doors = new Map<string, Opened>();
  const lead = createLead(deps);
  const leaving = new Set<Opened>();
  // A port that was given up is the last to be given again.
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
        // A break is told where the two are joined.
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

/** Listens at the next free port, at one that is avoided only where there is no other: whoever writes EndpointSlices could have all of them
 *  avoided. @throws unavailable when no port is free. */
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
      // Such as too many open files: callers that wait are taken later.
      server.on("error", () => undefined);
      return server;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    }
  }
  throw new CodedError(
    "unavailable",
    `no port from ${firstPort} to ${firstPort + portCount - 1} is free for pods' connections`,
  );
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}
