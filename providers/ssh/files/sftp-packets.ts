import { CodedError, type ErrorCode } from "../../../src/lib/errors.ts";
import { clipText } from "../connection/ssh2-peer.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";

/** Packet types of the SSH file transfer protocol, version 3, and of OpenSSH's extensions.
 *  @see https://datatracker.ietf.org/doc/html/draft-ietf-secsh-filexfer-02
 *  @see https://github.com/openssh/openssh-portable/blob/master/PROTOCOL */
export const sftp = {
  init: 1,
  version: 2,
  open: 3,
  close: 4,
  read: 5,
  fstat: 8,
  realpath: 16,
  stat: 17,
  readlink: 19,
  status: 101,
  handle: 102,
  data: 103,
  name: 104,
  attrs: 105,
  extended: 200,
  extendedReply: 201,
} as const;

const endOfFile = 1;

/** A reply without its request ID. */
export interface Reply {
  readonly type: number;
  readonly body: Buffer;
}

/** Encodes a packet; strings and buffers are prefixed with their length.
 *  @param id the request's ID; the version for INIT. */
export function packet(type: number, id: number, ...parts: readonly (string | Buffer | number | bigint)[]): Buffer {
  const body = Buffer.concat([Buffer.of(type), uint32(id), ...parts.map(encode)]);
  return Buffer.concat([uint32(body.length), body]);
}

function encode(part: string | Buffer | number | bigint): Buffer {
  if (typeof part === "number") return uint32(part);
  if (typeof part === "bigint") {
    const wide = Buffer.alloc(8);
    wide.writeBigUInt64BE(part);
    return wide;
  }
  const bytes = typeof part === "string" ? Buffer.from(part, "utf8") : part;
  return Buffer.concat([uint32(bytes.length), bytes]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** Splits a byte stream into packets in linear time. @throws CodedError for a packet that is longer than any expected reply. */
export function packetReader(onPacket: (reply: Reply) => void): (chunk: Buffer) => void {
  const held = new BoundedBuffer(4 + maxPacketBytes);
  /** Number of bytes needed: for the packet's length, then for the whole packet. */
  let wanted = 4;
  return (chunk) => {
    for (let at = 0; at < chunk.length; ) {
      const end = Math.min(chunk.length, at + wanted - held.length);
      held.add(chunk.subarray(at, end));
      at = end;
      if (held.length < wanted) return;
      if (wanted === 4) wanted += packetLength(held.bytes());
      else {
        const packet = held.take();
        wanted = 4;
        onPacket({ type: packet.readUInt8(4), body: packet.subarray(5) });
      }
    }
  };
}

function packetLength(head: Buffer): number {
  const length = head.readUInt32BE(0);
  if (length >= 1 && length <= maxPacketBytes) return length;
  throw new CodedError("failed_precondition", "the target's SFTP server does not speak SFTP");
}

const maxPacketBytes = 512 * 1024;

/** Reads a length-prefixed string. */
export function stringAt(body: Buffer, offset: number): Buffer {
  return body.subarray(offset + 4, offset + 4 + body.readUInt32BE(offset));
}

export interface SftpAttributes {
  readonly size: number;
  readonly uid: number;
  readonly gid: number;
  /** File type and permissions. */
  readonly mode: number;
  readonly modifiedAtSeconds: number;
}

/** Parses version 3 attributes; absent ones are zero. */
export function attributesOf(body: Buffer): SftpAttributes {
  const flags = body.readUInt32BE(0);
  let at = 4;
  const next = (bytes: number) => {
    at += bytes;
    return at - bytes;
  };
  const size = flags & 1 ? Number(body.readBigUInt64BE(next(8))) : 0;
  const [uid, gid] = flags & 2 ? [body.readUInt32BE(next(4)), body.readUInt32BE(next(4))] : [0, 0];
  const mode = flags & 4 ? body.readUInt32BE(next(4)) : 0;
  const modifiedAtSeconds = flags & 8 ? body.readUInt32BE(next(8) + 4) : 0;
  return { size, uid, gid, mode, modifiedAtSeconds };
}

/** True for an end-of-file status. */
export function isEnd({ type, body }: Reply): boolean {
  return type === sftp.status && body.readUInt32BE(0) === endOfFile;
}

const codes: Readonly<Record<number, ErrorCode>> = {
  2: "not_found",
  3: "permission_denied",
  5: "invalid_argument",
  6: "unavailable",
  7: "unavailable",
  8: "unimplemented",
};

/** Returns the body of a reply of the expected type.
 *  @throws the coded error of any other status.
 *  @param what path for the message. */
export function expectReply({ type, body }: Reply, expected: number, what: string): Buffer {
  if (type === expected) return body;
  if (type !== sftp.status)
    throw new CodedError("unknown", `${what}: the target's SFTP server sent an unexpected reply`);
  const code = body.readUInt32BE(0);
  const message = body.length > 8 ? clipText(stringAt(body, 4).toString("utf8")) : `status ${code}`;
  throw new CodedError(codes[code] ?? "unknown", `${what}: ${message}`);
}
