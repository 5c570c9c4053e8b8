import { once } from "node:events";
import { type Socket, connect } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { FairShares } from "../lib/fair-shares.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import type { AdmittedTraffic, TunnelGate } from "./gate.ts";
import { endWhenIdle, joinStreams, tcpKeepAlive } from "../lib/join-streams.ts";

export interface ConnectionForwarderDeps {
  readonly gate: Pick<TunnelGate, "admit" | "isDestination">;
  /** Concurrent connections, shared among pod addresses. */
  readonly shares: FairShares;
  /** Called with the reason when a connection is refused. */
  readonly onRefused: (fields: { readonly to: string; readonly err: unknown }) => void;
  /** Called with the pod's address when the pod has reached its connection limit. */
  readonly onLimitReached: (pod: string) => void;
  readonly clock: Pick<Clock, "within" | "after" | "monotonic">;
  /** Opens a connection from graftlet's own network; defaults to Node's `connect`. */
  readonly dial?: (to: { readonly host: string; readonly port: number }) => Socket;
}

/** Maximum length of the header line, bytes. */
const maxHeaderBytes = 64;
const headerTimeoutMs = 10_000;
/** Maximum number of concurrent connections whose header line has not arrived yet. */
const maxPendingHeaders = 2_048;
/** Time limit for connecting to the destination, milliseconds. */
const dialTimeoutMs = 10_000;
/** Rate and burst of connections to one destination that are open or were closed from this side. The kernel keeps the port of the side
 *  that closes first for a minute, and Linux has 28,232 ephemeral ports per destination; these limits leave some for graftlet itself and
 *  for other nodes of the process. Connections that the destination refuses or closes first cost no port and are not counted. */
const newConnectionsPerSecond = 250;
const newConnectionsBurst = 5_000;
const connectedByte = Buffer.from("+");

/** Token bucket of a destination; a negative amount returns tokens. */
type PortBucket = ReturnType<typeof createTokenBucket>;

const dialTcp = ({ host, port }: { readonly host: string; readonly port: number }) =>
  connect({ host, port, allowHalfOpen: true, noDelay: true, ...tcpKeepAlive });

/** Forwards connections that arrive over the link to their destinations in the cluster. Each connection begins with a header
 *  line: its source and its original destination. A half-close is passed on; an error on one side aborts the other.
 *  @returns a function that takes ownership of a connection and resolves when the connection has ended; never rejects. */
export function createConnectionForwarder(deps: ConnectionForwarderDeps): (connection: Duplex) => Promise<void> {
  const { gate, shares, onRefused, onLimitReached, clock, dial = dialTcp } = deps;
  const buckets = new Map<string, PortBucket>();
  let pendingHeaders = 0;
  const readHeader = async (connection: Duplex): Promise<string> => {
    if (pendingHeaders >= maxPendingHeaders)
      throw new CodedError("resource_exhausted", "too many connections without a header");
    pendingHeaders += 1;
    const timer = clock.after(headerTimeoutMs, () => connection.destroy());
    try {
      return await readHeaderLine(connection);
    } finally {
      timer.cancel();
      pendingHeaders -= 1;
    }
  };
  const bucketOf = (to: string): PortBucket => {
    const known = buckets.get(to);
    if (known) return known;
    for (const other of buckets.keys()) if (!gate.isDestination("tcp", other)) buckets.delete(other);
    const bucket = createTokenBucket(clock, newConnectionsPerSecond, newConnectionsBurst);
    buckets.set(to, bucket);
    return bucket;
  };
  const forward = async (connection: Duplex, { pod, to }: AdmittedTraffic, bucket: PortBucket): Promise<void> => {
    const release = shares.acquire(pod);
    if (!release) {
      onLimitReached(pod);
      throw new CodedError("resource_exhausted", `${pod} has reached its share of the node's connections`);
    }
    const ends = [release];
    let keepsPort = false;
    try {
      const socket = await waitForConnect(dial(to), clock.within(dialTimeoutMs));
      ends.push(endWhenIdle(socket, clock));
      socket.once("finish", () => (keepsPort = !socket.readableEnded));
      connection.write(connectedByte);
      await joinStreams(connection, socket);
    } finally {
      for (const end of ends) end();
      if (!keepsPort) bucket(-1);
    }
  };
  return async (connection) => {
    // Errors are reported where the two connections are joined.
    connection.on("error", () => undefined);
    let to = "?";
    try {
      const [host = "", port = "", toHost = "", toPort = ""] = (await readHeader(connection)).split(" ");
      to = `${toHost}:${toPort}`;
      const admitted = gate.admit("tcp", `${host}:${port}`, to);
      if (!admitted) throw new CodedError("permission_denied", "source or destination is not allowed");
      const bucket = bucketOf(to);
      if (!bucket()) throw new CodedError("resource_exhausted", "too many new connections to this destination");
      await forward(connection, admitted, bucket);
    } catch (err) {
      connection.destroy();
      if (err instanceof CodedError) onRefused({ to, err });
    }
  };
}

/** Opens a connection from graftlet's own network. @throws unavailable when the connection fails or the signal aborts. */
export function connectTo(to: { readonly host: string; readonly port: number }, timeout: AbortSignal): Promise<Socket> {
  return waitForConnect(dialTcp(to), timeout);
}

async function waitForConnect(socket: Socket, timeout: AbortSignal): Promise<Socket> {
  try {
    await once(socket, "connect", { signal: timeout });
    return socket;
  } catch (cause) {
    socket.destroy();
    const why = timeout.aborted ? `no answer within ${dialTimeoutMs} ms` : messageOf(cause);
    throw new CodedError("unavailable", why, { cause });
  }
}

/** Reads the first line and leaves the rest in the stream. */
async function readHeaderLine(connection: Duplex): Promise<string> {
  let head = Buffer.alloc(0);
  for (;;) {
    const chunk = connection.read() as Buffer | null;
    if (chunk === null) {
      if (connection.readableEnded || connection.destroyed)
        throw new CodedError("unavailable", "the connection ended or timed out before its header");
      await readableOrEnded(connection);
      continue;
    }
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf("\n");
    if (end > maxHeaderBytes || (end < 0 && head.length > maxHeaderBytes))
      throw new CodedError("invalid_argument", "header line too long");
    if (end < 0) continue;
    if (end + 1 < head.length) connection.unshift(head.subarray(end + 1));
    return head.subarray(0, end).toString("latin1");
  }
}

function readableOrEnded(connection: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const events = ["readable", "end", "close"];
    const on = () => {
      for (const name of events) connection.off(name, on);
      resolve();
    };
    for (const name of events) connection.on(name, on);
  });
}
