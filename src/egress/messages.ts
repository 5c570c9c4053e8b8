import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { CodedError } from "../lib/errors.ts";

/** A message of rancher's remotedialer, the tunnel through which k3s and RKE2 reach kubelets.
 *  @see https://github.com/rancher/remotedialer */
export type Message =
  | { readonly type: "data"; readonly connection: bigint; readonly data: Uint8Array }
  /** Open a connection, such as `tcp` to `127.0.0.1:10250`. */
  | { readonly type: "connect"; readonly connection: bigint; readonly protocol: string; readonly address: string }
  /** The end of a connection; `EOF` for a normal close. */
  | { readonly type: "error"; readonly connection: bigint; readonly text: string }
  | { readonly type: "pause" | "resume"; readonly connection: bigint }
  /** The sender's open connections; the receiver closes all others. */
  | { readonly type: "known"; readonly connections: readonly bigint[] };

const numbers = { data: 1, connect: 2, error: 3, pause: 6, resume: 7, known: 8 } as const;
/** An obsolete field that receivers ignore: milliseconds. */
const deadline = 15_000;
/** Maximum length of an error that the peer reads. */
const longestError = 100;

/** Encodes a message. @param id identifies the message in a debugger only. */
export function encodeMessage(message: Message, id: bigint): Uint8Array {
  const writer = new BinaryWriter();
  writer.sint64(id).sint64(message.type === "known" ? 0n : message.connection);
  writer.sint64(numbers[message.type]);
  if (message.type === "data" || message.type === "connect") writer.sint64(deadline);
  const body = bodyOf(message);
  return body ? Buffer.concat([writer.finish(), body]) : writer.finish();
}

function bodyOf(message: Message): Uint8Array | undefined {
  switch (message.type) {
    case "data":
      return message.data;
    case "connect":
      return Buffer.from(`${message.protocol}/${message.address}`);
    case "error":
      return Buffer.from(message.text).subarray(0, longestError);
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
export function decodeMessage(bytes: Uint8Array): Message | undefined {
  const reader = new BinaryReader(bytes);
  try {
    reader.sint64();
    const connection = BigInt(reader.sint64());
    const number = Number(reader.sint64());
    const type = (Object.keys(numbers) as Message["type"][]).find((name) => numbers[name] === number);
    if (type === undefined) return undefined;
    if (type === "data" || type === "connect") reader.sint64();
    const body = Buffer.from(bytes.buffer, bytes.byteOffset + reader.pos, bytes.byteLength - reader.pos);
    return messageOf(type, connection, body);
  } catch (cause) {
    if (cause instanceof CodedError) throw cause;
    throw new CodedError("invalid_argument", "malformed remotedialer message", { cause });
  }
}

function messageOf(type: Message["type"], connection: bigint, body: Buffer): Message {
  switch (type) {
    case "data":
      return { type, connection, data: body };
    case "connect": {
      const [protocol = "", ...rest] = body.toString().split("/");
      return { type, connection, protocol, address: rest.join("/") };
    }
    case "error":
      return { type, connection, text: body.toString() };
    case "known": {
      if (body.length % 8 !== 0) throw new CodedError("invalid_argument", "truncated list of connections");
      const count = body.length / 8;
      return { type, connections: Array.from({ length: count }, (_, index) => body.readBigInt64LE(index * 8)) };
    }
    default:
      return { type, connection };
  }
}
