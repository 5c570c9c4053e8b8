import type { Duplex, Readable, Writable } from "node:stream";
import type { Client, Connection as ServerConnection } from "ssh2";

/** Internals of an ssh2 1.17.0 connection that graftlet's own limits hook into, since ssh2 hardly limits its peer. A unit test pins the
 *  version. */
export interface SshPeer {
  readonly protocol: PeerProtocol;
  readonly socket: Duplex;
  /** Channels by this side's ID; the entry is a function while the channel is being opened. */
  readonly channels: PeerChannels;
}

export interface PeerChannels {
  /** ID of the newest channel; the next channel gets the next number. */
  _cur: number;
  /** @returns true for a channel that the peer is opening and that has been neither accepted nor refused. */
  get(id: number): PeerChannel | PeerSession | ((...args: never[]) => void) | true | undefined;
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

type ChannelOpener = (id: number, window: number, ...rest: unknown[]) => void;

export interface PeerProtocol {
  readonly _handlers: PeerHandlers;
  /** Handles each decrypted message, except the messages of a key exchange after the first one. */
  _onPayload: (payload: Buffer) => unknown;
  /** Undefined once the connection has ended: sending a message then throws. */
  readonly _destruct: unknown;
  /** Defined during a key exchange. */
  readonly _kexinit: unknown;
  /** True once the login is complete. */
  readonly _authenticated: boolean;
  channelWindowAdjust(peersId: number, bytes: number): void;
  channelOpenFail: (peersId: number, reason: number, text: string) => void;
  channelOpenConfirm: (peersId: number, id: number, window: number, longestPacket: number) => void;
  session: ChannelOpener;
  directTcpip: ChannelOpener;
  openssh_directStreamLocal: ChannelOpener;
  forwardedTcpip: ChannelOpener;
}

export interface PeerChannel extends Duplex {
  readonly outgoing: { readonly id: number; readonly state: "open" | "eof" | "closing" | "closed" };
  readonly incoming: { readonly state: "open" | "eof" | "closed" };
  /** A Writable in a server, a Readable in a client. */
  readonly stderr: Readable | Writable;
}

/** A session as ssh2 represents it in a server; its channel exists once the session has begun. */
export interface PeerSession {
  readonly _channel: PeerChannel | undefined;
}

/** Functions that open a channel from this side; their second argument is the peer's first window. */
export const channelOpeners = ["session", "directTcpip", "openssh_directStreamLocal", "forwardedTcpip"] as const;

const requiredHandlers = [
  "DISCONNECT",
  "CHANNEL_OPEN",
  "CHANNEL_OPEN_FAILURE",
  "CHANNEL_DATA",
  "CHANNEL_EXTENDED_DATA",
  "CHANNEL_EOF",
  "CHANNEL_CLOSE",
];
const requiredFunctions = [
  "_destruct",
  "_onPayload",
  "channelWindowAdjust",
  "channelOpenConfirm",
  "channelOpenFail",
  ...channelOpeners,
];

/** Returns the internals of a connection. To be called right after a client's `connect`, or when a server has accepted the connection.
 *  @throws Error when ssh2's internals differ. */
export function peerOf(connection: Client | ServerConnection): SshPeer {
  const { _protocol: protocol, _sock: socket, _chanMgr: channels } = connection as unknown as Record<string, unknown>;
  const known =
    hasFunctions(protocol, requiredFunctions) &&
    "_kexinit" in protocol &&
    "_authenticated" in protocol &&
    "_handlers" in protocol &&
    hasFunctions(protocol._handlers, requiredHandlers) &&
    hasFunctions(channels, ["get", "remove"]) &&
    typeof channels._cur === "number" &&
    hasFunctions(socket, ["pause", "resume", "destroy"]);
  if (!known)
    throw new Error(
      "this version of ssh2 cannot enforce limits: build graftlet with the version that its package.json names",
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

/** Returns an open channel; undefined for a channel that is not open, and for a server's session that has not begun. */
export function openChannel(value: ReturnType<SshPeer["channels"]["get"]>): PeerChannel | undefined {
  if (typeof value !== "object") return undefined;
  return "_channel" in value ? value._channel : value;
}

/** Clips a peer's text for use in messages, such as Node conditions and log lines. */
export function clipText(text: string): string {
  const plain = text.replace(/\p{Cc}+/gu, " ").trim();
  return plain.length <= maxTextLength ? plain : `${plain.slice(0, maxTextLength)}…`;
}

const maxTextLength = 300;
