import { type Socket, createSocket } from "node:dgram";
import type { Clock, Timer } from "../lib/clock.ts";
import { destinationOf } from "./destinations.ts";
import type { Datagram } from "./relay.ts";

export interface FlowDeps {
  readonly clock: Pick<Clock, "after">;
  readonly answer: (datagram: Datagram) => void;
  /** Opens a socket; Node's by default. */
  readonly open?: () => Socket;
}

/** Datagrams of pods on their way to the cluster. */
export interface Flows {
  send(datagram: Datagram): void;
  /** Ends all flows but those to these destinations. */
  keep(destinations: readonly string[]): void;
  close(): void;
}

interface Flow {
  readonly to: string;
  readonly socket: Socket;
  timer: Timer;
}

/** Time without a datagram after which a flow is forgotten, milliseconds: the kernel's own for an answered one. */
const idleMs = 60_000;
/** Flows at once; the one that began first makes room. */
const mostFlows = 4_096;

/** Sends datagrams on, each pod's port from a port of graftlet's own, and answers back. */
export function createFlows({ clock, answer, open = () => createSocket("udp4") }: FlowDeps): Flows {
  const flows = new Map<string, Flow>();
  const end = (key: string): void => {
    const flow = flows.get(key);
    if (!flow) return;
    flows.delete(key);
    flow.timer.cancel();
    flow.socket.close();
  };
  const begin = (key: string, { to, pod }: Datagram): Flow | undefined => {
    const destination = destinationOf(to);
    if (!destination) return undefined;
    const [oldest] = flows.keys();
    if (flows.size >= mostFlows && oldest !== undefined) end(oldest);
    const socket = open();
    // Nothing listens there: the pod hears as little of it as of any lost datagram.
    socket.on("error", () => undefined);
    socket.on("message", (data) => answer({ to, pod, data }));
    socket.connect(destination.port, destination.host);
    const flow = { to, socket, timer: clock.after(idleMs, () => end(key)) };
    flows.set(key, flow);
    return flow;
  };
  return {
    send(datagram) {
      const key = `${datagram.pod} ${datagram.to}`;
      const flow = flows.get(key) ?? begin(key, datagram);
      if (!flow) return;
      flow.timer.cancel();
      flow.timer = clock.after(idleMs, () => end(key));
      const send = () => flow.socket.send(datagram.data, () => undefined);
      if (isConnected(flow.socket)) send();
      else flow.socket.once("connect", send);
    },
    keep(destinations) {
      const kept = new Set(destinations);
      for (const [key, { to }] of flows) if (!kept.has(to)) end(key);
    },
    close() {
      for (const key of flows.keys()) end(key);
    },
  };
}

function isConnected(socket: Socket): boolean {
  try {
    return socket.remoteAddress() !== undefined;
  } catch {
    return false;
  }
}
