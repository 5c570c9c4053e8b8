import { type Socket, createSocket } from "node:dgram";
import type { Clock } from "../lib/clock.ts";
import { type Idle, createIdle } from "../lib/idle.ts";
import type { FairShares } from "../lib/fair-shares.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import type { Admitted, Gate } from "./gate.ts";
import type { Datagram } from "./relay.ts";

export interface FlowDeps {
  readonly gate: Pick<Gate, "admit">;
  /** Concurrent flows, shared among pod addresses. */
  readonly shares: FairShares;
  readonly clock: Clock;
  readonly answer: (datagram: Datagram) => void;
  /** Opens a socket; defaults to Node's `createSocket`. */
  readonly open?: () => Socket;
}

/** Forwards pods' datagrams to the cluster. */
export interface Flows {
  /** Forwards a datagram if the gate admits it; datagrams over a limit are dropped, as on any congested network. */
  send(datagram: Datagram): void;
  /** Closes the flows that the gate no longer admits. */
  recheck(): void;
  close(): void;
}

interface Flow {
  readonly from: string;
  readonly to: string;
  readonly socket: Socket;
  readonly idle: Idle;
  readonly giveBack: () => void;
  /** Datagrams queued until the socket is connected; undefined afterwards. */
  waiting?: Buffer[] | undefined;
}

/** Idle time after which a flow is removed, milliseconds: the kernel's own for a flow that was answered. */
const idleMs = 60_000;
/** Maximum number of queued datagrams per flow. */
const mostWaiting = 8;
/** Maximum number of queued bytes of all flows. */
const mostBytesWaiting = 1024 * 1024;
/** Maximum number of bytes per flow that Node queues when the kernel's buffer is full. */
const mostUnsent = 256 * 1024;
/** Rate limit in each direction for all pods of the node, bytes per second. */
const bytesPerSecond = 32 * 1024 * 1024;
/** Fixed cost of a datagram and of a new flow, charged to that rate limit for the work that they cause, bytes. */
const datagramCost = 1024;
const flowCost = 16 * 1024;

/** Forwards datagrams, each pod port from a local port of its own, and returns replies. A pod that has reached its share of flows loses
 *  its oldest one. */
export function createFlows({ gate, shares, clock, answer, open = () => createSocket("udp4") }: FlowDeps): Flows {
  /** By pod address, then by source and destination; oldest first. */
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
    const place = shares.acquire(pod);
    const [oldest] = byPod.get(pod) ?? [];
    if (place || !oldest) return place;
    end(pod, ...oldest);
    return shares.acquire(pod);
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
    // Nothing listens there, or no socket is left: for the pod this is a lost datagram.
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
