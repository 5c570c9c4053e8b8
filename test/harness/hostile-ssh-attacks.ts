import type { Duplex } from "node:stream";
import type { Connection, ServerConfig } from "ssh2";
import wire from "ssh2/lib/protocol/utils.js";

/** What ssh2's server has inside that an attack uses. */
export interface Inside {
  readonly _sock: Duplex;
  readonly _protocol: {
    readonly _packetRW: {
      readonly write: { readonly allocStart: number; alloc(length: number): Buffer; finalize(packet: Buffer): Buffer };
    };
    readonly _handlers: Record<string, unknown>;
    rekey(): void;
    channelOpenConfirm: (peersId: number, id: number, window: number, longestPacket: number) => void;
    channelData(id: number, data: Buffer): void;
    channelExtData(id: number, data: Buffer, type: number): void;
    openssh_forwardedStreamLocal(id: number, window: number, packet: number, at: { socketPath: string }): void;
    openssh_authPKOK?: unknown;
    authPKOK(algorithm: string, key: Buffer): void;
  };
}

export type HostileConnection = Connection & Inside;

/** A channel of a command that graftlet has started on the hostile target. */
export interface Session {
  readonly id: number;
  readonly command: string;
}

/** What a hostile server does beside serving commands and files as an honest one. */
export interface SshAttack {
  /** Its settings for ssh2's server. */
  readonly server?: Partial<ServerConfig>;
  /** Sent instead of all SSH. */
  readonly raw?: (socket: Duplex) => void;
  /** Called for each connection before its login. */
  readonly connected?: (connection: HostileConnection) => void;
  /** Called when the test says so. */
  readonly begin?: (connection: HostileConnection, sessions: readonly Session[], forwards: readonly string[]) => void;
  /** Alters what the SFTP server sends. */
  readonly sftp?: (data: Buffer) => Buffer;
}

/** Calls `one` over and over, as fast as the connection takes what it writes. */
export function flood(socket: Duplex, one: () => void): void {
  const go = () => {
    if (socket.destroyed) return;
    for (let n = 0; n < 256 && socket.writableLength < 4 * 2 ** 20; n += 1) one();
    setTimeout(go, socket.writableLength < 4 * 2 ** 20 ? 0 : 2);
  };
  go();
}

const uint32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const text = (value: string | Buffer): Buffer => Buffer.concat([uint32(value.length), Buffer.from(value)]);

/** Sends a message of any kind. */
function send({ _protocol: protocol }: HostileConnection, payload: Buffer): void {
  const { write } = protocol._packetRW;
  const packet = write.alloc(payload.length);
  packet.set(payload, write.allocStart);
  wire.sendPacket(protocol, write.finalize(packet));
}

const globalRequest = (name: string, rest = Buffer.alloc(0)): Buffer =>
  Buffer.concat([Buffer.of(80), text(name), Buffer.of(1), rest]);
const ignore = Buffer.concat([Buffer.of(2), text("")]);
const serviceAccept = Buffer.concat([Buffer.of(6), text("ssh-userauth")]);
const banner = Buffer.concat([Buffer.of(53), text("x".repeat(1000)), text("")]);

const floodOf =
  (message: Buffer): NonNullable<SshAttack["begin"]> =>
  (connection) =>
    flood(connection._sock, () => send(connection, message));

const newest = (sessions: readonly Session[]): number => sessions.at(-1)?.id ?? 0;

/** By name; the tests say what must be seen of each. */
export const sshAttacks: Readonly<Record<string, SshAttack>> = {
  none: {},
  channels: {
    begin(connection, _sessions, forwards) {
      let id = 1000;
      flood(connection._sock, () =>
        connection._protocol.openssh_forwardedStreamLocal(id++, 2 ** 21, 2 ** 15, {
          socketPath: forwards.at(-1) ?? "",
        }),
      );
    },
  },
  "unexpected channels": {
    begin(connection) {
      let id = 1000;
      flood(connection._sock, () =>
        connection._protocol.openssh_forwardedStreamLocal(id++, 2 ** 21, 2 ** 15, { socketPath: "/nobody" }),
      );
    },
  },
  "few channels": {
    begin(connection, _sessions, forwards) {
      for (let id = 1000; id < 4000; id += 1)
        connection._protocol.openssh_forwardedStreamLocal(id, 2 ** 21, 2 ** 15, { socketPath: forwards.at(-1) ?? "" });
    },
  },
  window: {
    begin(connection, sessions) {
      const block = Buffer.alloc(32_000);
      flood(connection._sock, () => connection._protocol.channelData(newest(sessions), block));
    },
  },
  "window of stderr": {
    begin(connection, sessions) {
      const block = Buffer.alloc(32_000);
      flood(connection._sock, () => connection._protocol.channelExtData(newest(sessions), block, 1));
    },
  },
  "small packets": {
    begin(connection, sessions) {
      let left = 250_000;
      flood(connection._sock, () => left-- > 0 && connection._protocol.channelData(newest(sessions), Buffer.of(120)));
    },
  },
  "empty packets": {
    begin(connection, sessions) {
      flood(connection._sock, () => connection._protocol.channelData(newest(sessions), Buffer.alloc(0)));
    },
  },
  "key exchanges": {
    begin(connection) {
      connection.on("handshake", () => connection._protocol.rekey());
      connection._protocol.rekey();
    },
  },
  "long ignored message": {
    begin: (connection) => send(connection, Buffer.concat([Buffer.of(2), text("z".repeat(30_000))])),
  },
  "ignored messages": { begin: floodOf(ignore) },
  "requests whose answers are not read": {
    begin(connection) {
      connection._sock.pause();
      flood(connection._sock, () => send(connection, globalRequest("keepalive@openssh.com")));
    },
  },
  "host keys": {
    begin(connection) {
      const key = text(Buffer.concat([text("ssh-ed25519"), text(Buffer.alloc(32, 7))]));
      const keys = Buffer.concat(Array.from({ length: 500 }, () => key));
      flood(connection._sock, () => send(connection, globalRequest("hostkeys-00@openssh.com", keys)));
    },
  },
  "many at once": {
    begin(connection, sessions) {
      const block = Buffer.alloc(32_000);
      flood(connection._sock, () => {
        send(connection, ignore);
        for (const { id } of sessions) connection._protocol.channelExtData(id, block, 1);
      });
      setTimeout(() => send(connection, serviceAccept), 2_000);
    },
  },
  "another login": { begin: floodOf(serviceAccept) },
  "long farewell": {
    begin(connection) {
      send(connection, Buffer.concat([Buffer.of(1), uint32(2), text(`bye\n${"y".repeat(30_000)}`), text("")]));
    },
  },
  "input that is not read": {
    begin(connection, sessions) {
      send(connection, Buffer.concat([Buffer.of(93), uint32(newest(sessions)), uint32(2 ** 31)]));
      connection._sock.pause();
    },
  },
  compression: { server: { algorithms: { compress: ["zlib"] } } },
  "groups of its own": { server: { algorithms: { kex: ["diffie-hellman-group-exchange-sha256"] } } },
  "packets of nothing": {
    connected: ({ _protocol: protocol }) => {
      const confirm = protocol.channelOpenConfirm.bind(protocol);
      protocol.channelOpenConfirm = (peersId, id, window) => confirm(peersId, id, window, 0);
    },
  },
  banners: {
    connected: (connection) =>
      void connection.once("handshake", () => flood(connection._sock, () => send(connection, banner))),
  },
  greeting: { raw: (socket) => flood(socket, () => socket.write(`${"x".repeat(60)}\r\n`)) },
  "endless greeting line": { raw: (socket) => flood(socket, () => socket.write("x".repeat(1000))) },
};
