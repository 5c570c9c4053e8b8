import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { CodedError } from "../lib/errors.ts";

/** A message of rancher's remotedialer, the tunnel through which k3s and RKE2 reach kubelets.
 *  @see https://github.com/rancher/remotedialer */
export type TunnelMessage =
  | { readonly kind: "data"; readonly connection: bigint; readonly data: Uint8Array }
  /** Open a connection, such as `tcp` to `127.0.0.1:10250`. */
  | { readonly kind: "connect"; readonly connection: bigint; readonly protocol: string; readonly address: string }
  /** The end of a connection; `EOF` for a normal close. */
  | { readonly kind: "error"; readonly connection: bigint; readonly text: string }
  | { readonly kind: "pause" | "resume"; readonly connection: bigint }
  /** The sender's open connections; the receiver closes all others. */
  | { readonly kind: "known"; readonly connections: readonly bigint[] };

const messageTypes = { data: 1, connect: 2, error: 3, pause: 6, resume: 7, known: 8 } as const;
/** An obsolete field that receivers ignore: milliseconds. */
const obsoleteDeadlineMs = 15_000;
/** Maximum length of an error that the peer reads. */
const maxErrorBytes = 100;

/** Encodes a message. @param id identifies the message in a debugger only. */
export function encodeMessage(message: TunnelMessage, id: bigint): Uint8Array {
  const writer = new BinaryWriter();
  writer.sint64(id).sint64(message.kind === "known" ? 0n : message.connection);
  writer.sint64(messageTypes[message.kind]);
  if (message.kind === "data" || message.kind === "connect") writer.sint64(obsoleteDeadlineMs);
  const body = encodeBody(message);
  return body ? Buffer.concat([writer.finish(), body]) : writer.finish();
}

function encodeBody(message: TunnelMessage): Uint8Array | undefined {
  switch (message.kind) {
    case "data":
      return message.data;
    case "connect":
      return Buffer.from(`${message.protocol}/${message.address}`);
    case "error":
      return Buffer.from(message.text).subarray(0, maxErrorBytes);
    case "known": {
      const ids = Buffer.alloc(message.connections.length * 8);
      message.connections.forEach((id, index) => ids.writeBigInt64LE(id, index * 8));
      return ids;
    }
    default:
      return undefined;
  }
}

/** Decodes a message; undefined for message types between servers. @throws CodedError invalid_argument */
export function decodeMessage(bytes: Uint8Array): TunnelMessage | undefined {
  const reader = new BinaryReader(bytes);
  try {
    reader.sint64();
    const connection = BigInt(reader.sint64());
    const number = Number(reader.sint64());
    const type = (Object.keys(messageTypes) as TunnelMessage["kind"][]).find((name) => messageTypes[name] === number);
    if (type === undefined) return undefined;
    if (type === "data" || type === "connect") reader.sint64();
    const body = Buffer.from(bytes.buffer, bytes.byteOffset + reader.pos, bytes.byteLength - reader.pos);
    return decodeBody(type, connection, body);
  } catch (cause) {
    if (cause instanceof CodedError) throw cause;
    throw new CodedError("invalid_argument", "malformed remotedialer message", { cause });
  }
}

function decodeBody(kind: TunnelMessage["kind"], connection: bigint, body: Buffer): TunnelMessage {
  switch (kind) {
    case "data":
      return { kind, connection, data: body };
    case "connect": {
      const [protocol = "", ...rest] = body.toString().split("/");
      return { kind, connection, protocol, address: rest.join("/") };
    }
    case "error":
      return { kind, connection, text: body.toString() };
    case "known": {
      if (body.length % 8 !== 0) throw new CodedError("invalid_argument", "truncated list of connections");
      const count = body.length / 8;
      return { kind, connections: Array.from({ length: count }, (_, index) => body.readBigInt64LE(index * 8)) };
    }
    default:
      return { kind, connection };
  }
}
