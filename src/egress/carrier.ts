import { type Socket, connect } from "node:net";
import { messageOf } from "../lib/errors.ts";
import type { Message } from "./messages.ts";

export interface CarrierDeps {
  /** Address to connect to for a target that the server dials; undefined for targets that are not allowed. */
  readonly leadsTo: (protocol: string, address: string) => { readonly host: string; readonly port: number } | undefined;
  /** Sends a message. @param sent called once it has been sent. */
  readonly send: (message: Message, sent?: () => void) => void;
  /** Number of bytes waiting to be sent. */
  readonly unsent: () => number;
}

/** Multiplexes the connections that an API server has opened through a tunnel. */
export interface Carrier {
  take(message: Message): void;
  /** IDs of the open connections, in order. */
  known(): readonly bigint[];
  /** Closes all connections. */
  close(): void;
}

interface Carried {
  readonly socket: Socket;
  /** The server has paused this connection: nothing is read from the socket. */
  paused: boolean;
  /** The server was asked to pause: the socket's write buffer is full. */
  full: boolean;
}

/** Maximum number of buffered bytes of a connection before the server is asked to pause; remotedialer's value. */
const mostWaiting = 2 ** 21;
/** Maximum number of bytes queued for the server before reading from connections stops. */
const mostUnsent = 2 ** 20;

/** Forwards connections between a tunnel and the allowed target. */
export function createCarrier({ leadsTo, send, unsent }: CarrierDeps): Carrier {
  const carried = new Map<bigint, Carried>();
  const room = createRoom(unsent);
  const ending = createEnding();
  const finish = (connection: bigint) => {
    const known = carried.get(connection);
    carried.delete(connection);
    if (known) ending.add(known.socket);
  };
  const open = ({ connection, protocol, address }: Message & { type: "connect" }) => {
    const place = leadsTo(protocol, address);
    if (!place) return send({ type: "error", connection, text: `${protocol}/${address} is not allowed` });
    const socket = connect({ ...place, noDelay: true });
    socket.on("error", (error) => end(messageOf(error)));
    const known: Carried = { socket, paused: false, full: false };
    carried.set(connection, known);
    const end = (text: string) => {
      if (carried.get(connection) !== known) return;
      carried.delete(connection);
      send({ type: "error", connection, text });
    };
    socket.on("data", (read) => {
      if (carried.get(connection) !== known) return;
      room.look(known);
      send({ type: "data", connection, data: typeof read === "string" ? Buffer.from(read) : read }, room.goOn);
    });
    socket.on("drain", () => {
      // While the server has paused us, its own write side would miss this; our answer to its resume repeats it.
      if (known.full && !known.paused) send({ type: "resume", connection });
      known.full = false;
    });
    socket.once("close", () => {
      room.forget(known);
      end("EOF");
    });
  };
  const write = ({ connection, data }: Message & { type: "data" }) => {
    const known = carried.get(connection);
    if (!known) return send({ type: "error", connection, text: "connection not found" });
    known.socket.write(data);
    if (known.full || known.socket.writableLength <= mostWaiting) return;
    known.full = true;
    send({ type: "pause", connection });
  };
  const hold = (connection: bigint, paused: boolean) => {
    const known = carried.get(connection);
    if (!known) return;
    known.paused = paused;
    if (paused) return void known.socket.pause();
    // remotedialer keeps one flag for both directions and does not wake its writer when it resumes by itself: repeat our own state.
    send({ type: known.full ? "pause" : "resume", connection });
    if (!room.waits(known)) known.socket.resume();
  };
  return {
    take(message) {
      if (message.type === "connect") open(message);
      else if (message.type === "data") write(message);
      else if (message.type === "error") finish(message.connection);
      else if (message.type !== "known") hold(message.connection, message.type === "pause");
    },
    known: () => [...carried.keys()].sort((one, other) => (one < other ? -1 : 1)),
    close() {
      for (const { socket } of carried.values()) socket.destroy();
      carried.clear();
      ending.close();
    },
  };
}

/** Backpressure of the tunnel: while too much is queued for the server, reading stops for every connection that has more data. */
function createRoom(unsent: () => number) {
  const waiting = new Set<Carried>();
  return {
    look(known: Carried) {
      if (unsent() <= mostUnsent) return;
      known.socket.pause();
      waiting.add(known);
    },
    goOn() {
      if (unsent() >= mostUnsent) return;
      for (const { socket, paused } of waiting) if (!paused) socket.resume();
      waiting.clear();
    },
    waits: (known: Carried) => waiting.has(known),
    forget: (known: Carried) => void waiting.delete(known),
  };
}

/** Connections that the server has closed and that still have received data to write. */
function createEnding() {
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
