import type { Duplex, Readable, Writable } from "node:stream";
import type { Client, Connection as ServerConnection } from "ssh2";

/** ssh2 keeps few limits on its peer. This file names the parts of a connection that graftlet's own limits hook into, as of ssh2 1.17.0:
 *  a unit test holds it to that version. */
export interface SshPeer {
  readonly protocol: PeerProtocol;
  readonly socket: Duplex;
  /** Channels by this side's ID; a function stands for one that is being opened. */
  readonly channels: PeerChannels;
}

export interface PeerChannels {
  /** The newest one's ID. */
  readonly _cur: number;
  /** @returns true for one that the peer opens and that is neither accepted nor refused. */
  get(id: number): PeerChannel | ((...args: never[]) => void) | true | undefined;
  remove(id: number): void;
}

/** A message's handler; its first argument is the protocol. */
type Handler<Rest extends unknown[] = never[]> = (protocol: unknown, ...rest: Rest) => void;

export interface PeerHandlers {
  DISCONNECT: Handler<[reason: number, text: string | undefined]>;
  CHANNEL_OPEN: Handler<[info: { readonly sender: number }]>;
  CHANNEL_OPEN_FAILURE: Handler<[id: number, reason: number, text: string | undefined]>;
  CHANNEL_DATA: Handler<[id: number, data: Buffer]>;
  CHANNEL_EXTENDED_DATA: Handler<[id: number, data: Buffer, type: number]>;
  CHANNEL_EOF: Handler<[id: number]>;
  CHANNEL_CLOSE: Handler<[id: number]>;
}

type Opens = (id: number, window: number, ...rest: unknown[]) => void;

export interface PeerProtocol {
  readonly _handlers: PeerHandlers;
  /** Takes each deciphered message, but for those of a key exchange after its first one. */
  _onPayload: (payload: Buffer) => unknown;
  /** Undefined once the connection has ended: whatever sends a message then throws. */
  readonly _destruct: unknown;
  /** Defined while keys are exchanged. */
  readonly _kexinit: unknown;
  /** The login is done. */
  readonly _authenticated: boolean;
  channelWindowAdjust(peersId: number, bytes: number): void;
  channelOpenFail(peersId: number, reason: number, text: string): void;
  channelOpenConfirm: (peersId: number, id: number, window: number, longestPacket: number) => void;
  session: Opens;
  directTcpip: Opens;
  openssh_directStreamLocal: Opens;
  forwardedTcpip: Opens;
}

export interface PeerChannel extends Duplex {
  readonly outgoing: { readonly id: number; readonly state: "open" | "eof" | "closing" | "closed" };
  readonly incoming: { readonly state: "open" | "eof" | "closed" };
  /** A server's is not readable. */
  readonly stderr: Readable | Writable;
}

/** The functions that open a channel from this side; their second argument is the first window that the peer gets. */
export const opening = ["session", "directTcpip", "openssh_directStreamLocal", "forwardedTcpip"] as const;

const handled = [
  "DISCONNECT",
  "CHANNEL_OPEN",
  "CHANNEL_OPEN_FAILURE",
  "CHANNEL_DATA",
  "CHANNEL_EXTENDED_DATA",
  "CHANNEL_EOF",
  "CHANNEL_CLOSE",
];
const called = ["_destruct", "_onPayload", "channelWindowAdjust", "channelOpenConfirm", "channelOpenFail", ...opening];

/** The parts of a connection. To be called right after a client's connect, or once a server has its connection.
 *  @throws Error when ssh2 is built otherwise. */
export function peerOf(connection: Client | ServerConnection): SshPeer {
  const { _protocol: protocol, _sock: socket, _chanMgr: channels } = connection as unknown as Record<string, unknown>;
  const known =
    hasFunctions(protocol, called) &&
    "_kexinit" in protocol &&
    "_authenticated" in protocol &&
    "_handlers" in protocol &&
    hasFunctions(protocol._handlers, handled) &&
    hasFunctions(channels, ["get", "remove"]) &&
    typeof channels._cur === "number" &&
    hasFunctions(socket, ["pause", "resume", "destroy"]);
  if (!known)
    throw new Error(
      "this version of ssh2 cannot be held to limits: build graftlet with the version that its package.json names",
    );
  return { protocol, socket, channels } as unknown as SshPeer;
}

function hasFunctions(value: unknown, names: readonly string[]): value is Record<string, unknown> {
  return (
    typeof value === "object" &&
    value !== null &&
    names.every((name) => typeof (value as Record<string, unknown>)[name] === "function")
  );
}

/** True for a channel that is open. */
export function isChannel(value: ReturnType<SshPeer["channels"]["get"]>): value is PeerChannel {
  return typeof value === "object";
}

/** A peer's text as far as it goes into a message: a Node's condition and the log have room for one sentence. */
export function clipped(text: string): string {
  const plain = text.replace(/\p{Cc}+/gu, " ").trim();
  return plain.length <= longestText ? plain : `${plain.slice(0, longestText)}…`;
}

const longestText = 300;
