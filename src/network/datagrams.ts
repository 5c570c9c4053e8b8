import { type Socket, createSocket } from "node:dgram";
import type { Clock } from "../lib/clock.ts";
import { type Idle, createIdle } from "../lib/idle.ts";
import type { Shares } from "../lib/shares.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import type { Admitted, Gate } from "./gate.ts";
import type { Datagram } from "./relay.ts";

export interface FlowDeps {
  readonly gate: Pick<Gate, "admit">;
  /** Flows at once, shared by the addresses of pods. */
  readonly shares: Shares;
  readonly clock: Clock;
  readonly answer: (datagram: Datagram) => void;
  /** Opens a socket; Node's by default. */
  readonly open?: () => Socket;
}

/** Datagrams of pods on their way to the cluster. */
export interface Flows {
  /** Sends a datagram on if the gate admits it; what exceeds a bound is dropped, as on any full network. */
  send(datagram: Datagram): void;
  /** Ends the flows that the gate no longer admits. */
  recheck(): void;
  close(): void;
}

interface Flow {
  readonly from: string;
  readonly to: string;
  readonly socket: Socket;
  readonly idle: Idle;
  readonly giveBack: () => void;
  /** Datagrams that wait for the socket to be connected; undefined once it is. */
  waiting?: Buffer[] | undefined;
}

/** Time without a datagram after which a flow is forgotten, milliseconds: the kernel's own for an answered one. */
const idleMs = 60_000;
/** Datagrams of a flow that wait for its socket. */
const mostWaiting = 8;
/** Bytes that all flows' datagrams wait with. */
const mostBytesWaiting = 1024 * 1024;
/** Bytes of a flow that wait in the kernel's stead where its buffer is full. */
const mostUnsent = 256 * 1024;
/** Bytes a second that a node's pods may send, and as many that they may get. */
const bytesPerSecond = 32 * 1024 * 1024;
/** What a datagram, and a new flow, cost of that besides their bytes: the work that they are. */
const datagramCost = 1024;
const flowCost = 16 * 1024;

/** Sends datagrams on, each pod's port from a port of graftlet's own, and answers back. A pod that has its share of flows loses the one that
 *  it began first. */
export function createFlows({ gate, shares, clock, answer, open = () => createSocket("udp4") }: FlowDeps): Flows {
  /** By the pod's address, then by both ends; those that began first come first. */
  const byPod = new Map<string, Map<string, Flow>>();
  const maySend = createTokenBucket(clock, bytesPerSecond, bytesPerSecond);
  const mayAnswer = createTokenBucket(clock, bytesPerSecond, bytesPerSecond);
  let bytesWaiting = 0;
  const stopWaiting = (flow: Flow): readonly Buffer[] => {
    const waited = flow.waiting ?? [];
    flow.waiting = undefined;
    for (const { length } of waited) bytesWaiting -= length;
    return waited;
  };
  const end = (pod: string, key: string, flow: Flow): void => {
    const own = byPod.get(pod);
    if (own?.get(key) !== flow) return;
    own.delete(key);
    if (own.size === 0) byPod.delete(pod);
    stopWaiting(flow);
    flow.idle.stop();
    flow.giveBack();
    flow.socket.close();
  };
  const endAll = (isOver: (flow: Flow) => boolean) => {
    for (const [pod, own] of byPod) for (const [key, flow] of own) if (isOver(flow)) end(pod, key, flow);
  };
  const placeFor = (pod: string): (() => void) | undefined => {
    const place = shares.take(pod);
    const [oldest] = byPod.get(pod) ?? [];
    if (place || !oldest) return place;
    end(pod, ...oldest);
    return shares.take(pod);
  };
  const begin = (key: string, { pod, to: { host, port } }: Admitted, datagram: Datagram): Flow | undefined => {
    if (!maySend(flowCost)) return undefined;
    const giveBack = placeFor(pod);
    if (!giveBack) return undefined;
    const { pod: from, to } = datagram;
    const socket = open();
    const idle = createIdle(clock, idleMs, () => end(pod, key, flow));
    const flow: Flow = { from, to, socket, idle, giveBack, waiting: [] };
    byPod.set(pod, (byPod.get(pod) ?? new Map<string, Flow>()).set(key, flow));
    // Nothing listens there, or there is no socket left: to the pod that is a lost datagram.
    socket.on("error", () => end(pod, key, flow));
    socket.on("message", (data) => {
      if (mayAnswer(data.length + datagramCost)) answer({ to, pod: from, data });
    });
    socket.on("connect", () => {
      for (const data of stopWaiting(flow)) transmit(flow, data);
    });
    socket.connect(port, host);
    return flow;
  };
  return {
    send(datagram) {
      const { to, pod: from, data } = datagram;
      if (!maySend(data.length + datagramCost)) return;
      const admitted = gate.admit("udp", from, to);
      if (!admitted) return;
      const key = `${from} ${to}`;
      const flow = byPod.get(admitted.pod)?.get(key) ?? begin(key, admitted, datagram);
      if (!flow) return;
      flow.idle.touch();
      if (!flow.waiting) return transmit(flow, data);
      if (flow.waiting.length >= mostWaiting || bytesWaiting + data.length > mostBytesWaiting) return;
      flow.waiting.push(data);
      bytesWaiting += data.length;
    },
    recheck: () => endAll((flow) => gate.admit("udp", flow.from, flow.to) === undefined),
    close: () => endAll(() => true),
  };
}

function transmit({ socket }: Flow, data: Buffer): void {
  if (socket.getSendQueueSize() + data.length <= mostUnsent) socket.send(data, () => undefined);
}
