import { type Socket, createSocket } from "node:dgram";
import type { Clock } from "../lib/clock.ts";
import { type Idle, createIdle } from "../lib/idle.ts";
import type { FairShares } from "../lib/fair-shares.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import type { AdmittedTraffic, TunnelGate } from "./gate.ts";
import type { Datagram } from "./relay.ts";

export interface DatagramFlowsDeps {
  readonly gate: Pick<TunnelGate, "admit">;
  /** Concurrent flows, shared among pod addresses. */
  readonly shares: FairShares;
  readonly clock: Clock;
  readonly reply: (datagram: Datagram) => void;
  /** Opens a socket; defaults to Node's `createSocket`. */
  readonly open?: () => Socket;
}

/** Forwards pods' datagrams to the cluster. */
export type DatagramFlows = ReturnType<typeof createDatagramFlows>;

interface DatagramFlow {
  readonly from: string;
  readonly to: string;
  readonly socket: Socket;
  readonly idle: Idle;
  readonly release: () => void;
  /** Datagrams queued until the socket is connected; undefined afterwards. */
  queued?: Buffer[] | undefined;
}

/** Idle time after which a flow is removed, milliseconds. */
const idleMs = 60_000;
/** Maximum number of queued datagrams per flow. */
const maxQueued = 8;
/** Maximum number of queued bytes of all flows. */
const maxQueuedBytes = 1024 * 1024;
/** Maximum number of bytes per flow that Node queues when the kernel's buffer is full. */
const maxUnsentBytes = 256 * 1024;
/** Rate limit in each direction for all pods of the node, bytes per second. */
const bytesPerSecond = 32 * 1024 * 1024;
/** Fixed cost of a datagram and of a new flow, charged to that rate limit for the work that they cause, bytes. */
const datagramCost = 1024;
const flowCost = 16 * 1024;

/** Forwards datagrams, using a separate local port for each flow, and returns replies. A new flow of a pod that has reached its
 *  share replaces the pod's oldest flow. */
export function createDatagramFlows({
  gate,
  shares,
  clock,
  reply,
  open = () => createSocket("udp4"),
}: DatagramFlowsDeps) {
  /** Flows by pod address, then by source and destination; oldest first. */
  const byPod = new Map<string, Map<string, DatagramFlow>>();
  const takeSendTokens = createTokenBucket(clock, bytesPerSecond, bytesPerSecond);
  const takeReplyTokens = createTokenBucket(clock, bytesPerSecond, bytesPerSecond);
  let queuedBytes = 0;
  const takeQueued = (flow: DatagramFlow): readonly Buffer[] => {
    const waited = flow.queued ?? [];
    flow.queued = undefined;
    for (const { length } of waited) queuedBytes -= length;
    return waited;
  };
  const end = (pod: string, key: string, flow: DatagramFlow): void => {
    const own = byPod.get(pod);
    if (own?.get(key) !== flow) return;
    own.delete(key);
    if (own.size === 0) byPod.delete(pod);
    takeQueued(flow);
    flow.idle.stop();
    flow.release();
    flow.socket.close();
  };
  const endAll = (isOver: (flow: DatagramFlow) => boolean) => {
    for (const [pod, own] of byPod) for (const [key, flow] of own) if (isOver(flow)) end(pod, key, flow);
  };
  const acquireFlow = (pod: string): (() => void) | undefined => {
    const place = shares.acquire(pod);
    const [oldest] = byPod.get(pod) ?? [];
    if (place || !oldest) return place;
    end(pod, ...oldest);
    return shares.acquire(pod);
  };
  const openFlow = (
    key: string,
    { pod, to: { host, port } }: AdmittedTraffic,
    datagram: Datagram,
  ): DatagramFlow | undefined => {
    if (!takeSendTokens(flowCost)) return undefined;
    const release = acquireFlow(pod);
    if (!release) return undefined;
    const { pod: from, to } = datagram;
    const socket = open();
    const idle = createIdle(clock, idleMs, () => end(pod, key, flow));
    const flow: DatagramFlow = { from, to, socket, idle, release, queued: [] };
    byPod.set(pod, (byPod.get(pod) ?? new Map<string, DatagramFlow>()).set(key, flow));
    // Nothing listens at the destination, or no socket is available: the datagram is lost.
    socket.on("error", () => end(pod, key, flow));
    socket.on("message", (data) => {
      if (takeReplyTokens(data.length + datagramCost)) reply({ to, pod: from, data });
    });
    socket.on("connect", () => {
      for (const data of takeQueued(flow)) transmit(flow, data);
    });
    socket.connect(port, host);
    return flow;
  };
  return {
    /** Forwards a datagram if the gate admits it; datagrams over a limit are dropped, as on any congested network. */
    send(datagram: Datagram): void {
      const { to, pod: from, data } = datagram;
      if (!takeSendTokens(data.length + datagramCost)) return;
      const admitted = gate.admit("udp", from, to);
      if (!admitted) return;
      const key = `${from} ${to}`;
      const flow = byPod.get(admitted.pod)?.get(key) ?? openFlow(key, admitted, datagram);
      if (!flow) return;
      flow.idle.touch();
      if (!flow.queued) return transmit(flow, data);
      if (flow.queued.length >= maxQueued || queuedBytes + data.length > maxQueuedBytes) return;
      flow.queued.push(data);
      queuedBytes += data.length;
    },
    /** Closes the flows that the gate no longer admits. */
    recheck: (): void => endAll((flow) => gate.admit("udp", flow.from, flow.to) === undefined),
    close: (): void => endAll(() => true),
  };
}

function transmit({ socket }: DatagramFlow, data: Buffer): void {
  if (socket.getSendQueueSize() + data.length <= maxUnsentBytes) socket.send(data, () => undefined);
}
