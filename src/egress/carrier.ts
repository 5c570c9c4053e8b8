import { type Socket, connect } from "node:net";
import { messageOf } from "../lib/errors.ts";
import type { Message } from "./messages.ts";

export interface CarrierDeps {
  /** Where to connect for what the server dials; undefined for what it may not. */
  readonly leadsTo: (protocol: string, address: string) => { readonly host: string; readonly port: number } | undefined;
  /** Sends a message. @param sent told once it is out. */
  readonly send: (message: Message, sent?: () => void) => void;
  /** Bytes that wait to be sent. */
  readonly unsent: () => number;
}

/** Connections that an API server has opened through a tunnel. */
export interface Carrier {
  take(message: Message): void;
  /** Their numbers, in order. */
  known(): readonly bigint[];
  /** Ends all of them. */
  close(): void;
}

interface Carried {
  readonly socket: Socket;
  /** The server takes no more of it for now. */
  paused: boolean;
  /** The server was asked to send no more of it for now. */
  full: boolean;
}

/** Bytes of a connection that may wait here before the server is asked to pause; the library's number. */
const mostWaiting = 2 ** 21;
/** Bytes that may wait for the link to the server before connections are read no further. */
const mostUnsent = 2 ** 20;

/** Carries connections between a tunnel and what it leads to. */
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
    if (!place) return send({ type: "error", connection, text: `${protocol}/${address} is not served here` });
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
      // While the server holds us up, its own end of that would be lost: it hears this with our answer to it.
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
    // The library has one flag for both ways, and forgets to wake its writer when it resumes by itself: it is told anew how we stand.
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

/** Room on the link to the server: while much waits for it, connections are read no further, whosever it is. */
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

/** Connections that are over for the server, and still take what it had sent. */
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
