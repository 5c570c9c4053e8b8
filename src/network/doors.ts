import { once } from "node:events";
import { type AddressInfo, type Server, type Socket, createServer } from "node:net";
import type { Clock, Timer } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { createLimitedWarning } from "../lib/limited-warning.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { joinStreams } from "./join-streams.ts";

export interface DoorDeps {
  /** Opens a connection from the target. */
  readonly dial: Host["dial"];
  /** The address that the pod has on the target; undefined while it has none. */
  readonly addressOf: (uid: string) => string | undefined;
  /** Address in the cluster to listen at. */
  readonly own: string;
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

/** Leads connections to pods on the target, each over the link. What a pod refuses is reset. */
export function createDoors(deps: DoorDeps): Doors {
  const doors = new Map<string, Opened>();
  const warn = createLimitedWarning(deps, "a connection to a pod of the target failed");
  const lead = async (door: Door, socket: Socket) => {
    try {
      const host = deps.addressOf(door.uid);
      if (host === undefined) throw new CodedError("unavailable", "the pod has no address");
      const pod = await deps.dial({ host, port: door.port }, deps.clock.within(dialMs));
      if (socket.destroyed) return void pod.destroy();
      await joinStreams(socket, pod).catch(() => socket.resetAndDestroy());
    } catch (err) {
      socket.resetAndDestroy();
      warn({ uid: door.uid, port: door.port, err });
    }
  };
  const leaving = new Set<Opened>();
  // A port that was given up is the last to be given again.
  const ports = { next: 0 };
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
      const server = await listenNext(deps.own, ports, avoided, (socket) => {
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

/** Listens at the next free port that is none of those. @throws unavailable when there is none. */
async function listenNext(
  host: string,
  ports: { next: number },
  avoided: ReadonlySet<number>,
  take: (socket: Socket) => void,
): Promise<Server> {
  for (let tries = 0; tries < portCount; tries += 1) {
    const port = firstPort + (ports.next % portCount);
    ports.next += 1;
    if (avoided.has(port)) continue;
    const server = createServer({ allowHalfOpen: true, noDelay: true }, take);
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
