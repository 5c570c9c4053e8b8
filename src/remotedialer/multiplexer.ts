import { type Socket, connect } from "node:net";
import { messageOf } from "../lib/errors.ts";
import type { TunnelMessage } from "./messages.ts";

export interface MultiplexerDeps {
  /** Address to connect to for a target that the server dials; undefined for targets that are not allowed. */
  readonly resolveTarget: (
    protocol: string,
    address: string,
  ) => { readonly host: string; readonly port: number } | undefined;
  /** Sends a message. @param sent called once it has been sent. */
  readonly send: (message: TunnelMessage, sent?: () => void) => void;
  /** Number of bytes waiting to be sent. */
  readonly unsentBytes: () => number;
}

/** Multiplexes the connections that an API server has opened through a tunnel. */
export type ConnectionMultiplexer = ReturnType<typeof createMultiplexer>;

interface TunnelConnection {
  readonly socket: Socket;
  /** True while the server has paused this connection: nothing is read from the socket. */
  paused: boolean;
  /** True while the server is asked to pause because the socket's write buffer is full. */
  isFull: boolean;
}

/** Maximum number of buffered bytes of a connection before the server is asked to pause; remotedialer's value. */
const maxBufferedBytes = 2 ** 21;
/** Maximum number of bytes queued for the server before reading from connections stops. */
const maxUnsentBytes = 2 ** 20;

/** Forwards connections between a tunnel and the allowed target. */
export function createMultiplexer({ resolveTarget, send, unsentBytes }: MultiplexerDeps) {
  const openConnections = new Map<bigint, TunnelConnection>();
  const backpressure = createBackpressure(unsentBytes);
  const draining = createDraining();
  const drain = (connection: bigint) => {
    const entry = openConnections.get(connection);
    openConnections.delete(connection);
    if (entry) draining.add(entry.socket);
  };
  const open = ({ connection, protocol, address }: TunnelMessage & { kind: "connect" }) => {
    const target = resolveTarget(protocol, address);
    if (!target) return send({ kind: "error", connection, text: `${protocol}/${address} is not allowed` });
    const socket = connect({ ...target, noDelay: true });
    socket.on("error", (error) => end(messageOf(error)));
    const entry: TunnelConnection = { socket, paused: false, isFull: false };
    openConnections.set(connection, entry);
    const end = (text: string) => {
      if (openConnections.get(connection) !== entry) return;
      openConnections.delete(connection);
      send({ kind: "error", connection, text });
    };
    socket.on("data", (read) => {
      if (openConnections.get(connection) !== entry) return;
      backpressure.pauseIfFull(entry);
      send(
        { kind: "data", connection, data: typeof read === "string" ? Buffer.from(read) : read },
        backpressure.resume,
      );
    });
    socket.on("drain", () => {
      // Not sent while the server has paused the connection: its writer would miss the message. It is repeated when the server resumes.
      if (entry.isFull && !entry.paused) send({ kind: "resume", connection });
      entry.isFull = false;
    });
    socket.once("close", () => {
      backpressure.forget(entry);
      end("EOF");
    });
  };
  const write = ({ connection, data }: TunnelMessage & { kind: "data" }) => {
    const entry = openConnections.get(connection);
    if (!entry) return send({ kind: "error", connection, text: "connection not found" });
    entry.socket.write(data);
    if (entry.isFull || entry.socket.writableLength <= maxBufferedBytes) return;
    entry.isFull = true;
    send({ kind: "pause", connection });
  };
  const setPaused = (connection: bigint, paused: boolean) => {
    const entry = openConnections.get(connection);
    if (!entry) return;
    entry.paused = paused;
    if (paused) return void entry.socket.pause();
    // Send our own state again: remotedialer has one pause flag for both directions, and does not wake its writer when it resumes.
    send({ kind: entry.isFull ? "pause" : "resume", connection });
    if (!backpressure.isWaiting(entry)) entry.socket.resume();
  };
  return {
    handle(message: TunnelMessage): void {
      if (message.kind === "connect") open(message);
      else if (message.kind === "data") write(message);
      else if (message.kind === "error") drain(message.connection);
      else if (message.kind !== "known") setPaused(message.connection, message.kind === "pause");
    },
    /** IDs of the open connections, in order. */
    connections: (): readonly bigint[] => [...openConnections.keys()].sort((one, other) => (one < other ? -1 : 1)),
    close(): void {
      for (const { socket } of openConnections.values()) socket.destroy();
      openConnections.clear();
      draining.close();
    },
  };
}

/** Backpressure of the tunnel: while too much is queued for the server, reading stops for every connection that has more data. */
function createBackpressure(unsent: () => number) {
  const waiting = new Set<TunnelConnection>();
  return {
    pauseIfFull(connection: TunnelConnection) {
      if (unsent() <= maxUnsentBytes) return;
      connection.socket.pause();
      waiting.add(connection);
    },
    resume() {
      if (unsent() >= maxUnsentBytes) return;
      for (const { socket, paused } of waiting) if (!paused) socket.resume();
      waiting.clear();
    },
    isWaiting: (connection: TunnelConnection) => waiting.has(connection),
    forget: (connection: TunnelConnection) => void waiting.delete(connection),
  };
}

/** Connections that the server has closed and that still have received data to write. */
function createDraining() {
  const sockets = new Set<Socket>();
  return {
    add(socket: Socket) {
      if (socket.destroyed) return;
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket));
      socket.destroySoon();
    },
    close() {
      for (const socket of sockets) socket.destroy();
    },
  };
}
