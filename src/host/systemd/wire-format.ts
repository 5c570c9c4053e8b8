import { CodedError } from "../../lib/errors.ts";

/** Encodes and decodes the few D-Bus messages that graftlet uses. A general decoder would allocate as much memory as a sender's
 *  signature asks for; this one decodes numbers and strings of small messages only.
 *  @see https://dbus.freedesktop.org/doc/dbus-specification.html#message-protocol */

/** A method call to encode. */
export interface OutgoingCall {
  readonly serial: number;
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly signature?: string;
  readonly body?: readonly unknown[];
}

export type MessageType = "call" | "return" | "error" | "signal";

/** A message from the bus with a decoded header; the body is not decoded yet. */
export interface IncomingMessage {
  readonly type: MessageType;
  /** Unique name of the sender, set by the bus. */
  readonly sender: string;
  readonly path?: string;
  readonly interface?: string;
  readonly member?: string;
  readonly errorName?: string;
  readonly replySerial?: number;
  readonly signature: string;
  readonly body: Uint8Array;
  readonly isLittleEndian: boolean;
}

/** A decoded value; other types are not used. */
export type Scalar = string | number | bigint | boolean;

/** Largest message that is read, bytes. Answers are a path, a number or a text; the bus itself allows 32 MiB. */
export const maxMessageBytes = 64 << 10;
/** Maximum number of values decoded from a message. */
const maxValues = 8;
/** Length of the fixed part of a header, bytes. */
const fixedHeaderBytes = 16;
/** Maximum message length of the specification, bytes; a larger length means that the data is not D-Bus. */
const maxProtocolMessageBytes = 128 << 20;

const types: readonly (MessageType | undefined)[] = [undefined, "call", "return", "error", "signal"];
/** Codes of header fields with their types. */
const headerFields = {
  1: ["path", "o"],
  2: ["interface", "s"],
  3: ["member", "s"],
  4: ["errorName", "s"],
  5: ["replySerial", "u"],
  6: ["destination", "s"],
  7: ["sender", "s"],
  8: ["signature", "g"],
} as const;

/** Splits a stream of bytes into messages. A message longer than `maxMessageBytes` is skipped without buffering it. @returns a
 *  function to call with each chunk. @throws unavailable for bytes that are not D-Bus messages. */
export function createMessageReader(onMessage: (message: IncomingMessage) => void): (chunk: Uint8Array) => void {
  let kept: Uint8Array = Buffer.alloc(0);
  let skipBytes = 0;
  return (chunk) => {
    let bytes = kept.length === 0 ? chunk : Buffer.concat([kept, chunk]);
    for (;;) {
      const skipped = Math.min(skipBytes, bytes.length);
      skipBytes -= skipped;
      bytes = bytes.subarray(skipped);
      if (bytes.length < fixedHeaderBytes) break;
      const length = messageLength(bytes);
      if (length > maxMessageBytes) skipBytes = length;
      else if (bytes.length < length) break;
      else {
        const message = decodeMessage(bytes.subarray(0, length));
        if (message) onMessage(message);
        bytes = bytes.subarray(length);
      }
    }
    // A copy: a view would retain the whole chunk.
    kept = Buffer.from(bytes);
  };
}

/** @param bytes starting with a message's fixed header. */
function messageLength(bytes: Uint8Array): number {
  const [order, type, , version] = bytes;
  if ((order !== littleEndian && order !== bigEndian) || version !== 1 || type === 0) throw notDBus();
  const view = viewOf(bytes);
  const length = padded(fixedHeaderBytes + view.getUint32(12, order === littleEndian), 8);
  const whole = length + view.getUint32(4, order === littleEndian);
  if (whole > maxProtocolMessageBytes) throw notDBus();
  return whole;
}

const [littleEndian, bigEndian] = [0x6c, 0x42];

/** @returns undefined for a malformed header: any user of the target may send one, so only that message is dropped. */
function decodeMessage(bytes: Uint8Array): IncomingMessage | undefined {
  const isLittleEndian = bytes[0] === littleEndian;
  const bodyBytes = viewOf(bytes).getUint32(4, isLittleEndian);
  const fieldsEnd = fixedHeaderBytes + viewOf(bytes).getUint32(12, isLittleEndian);
  const fields = fieldsOf(createReader(bytes.subarray(0, fieldsEnd), isLittleEndian), fieldsEnd);
  return (
    fields && {
      sender: "",
      signature: "",
      ...fields,
      type: types[bytes[1] ?? 0] ?? "call",
      body: bytes.subarray(bytes.length - bodyBytes),
      isLittleEndian,
    }
  );
}

function fieldsOf(reader: Reader, end: number): Record<string, Scalar> | undefined {
  const fields: Record<string, Scalar> = {};
  try {
    reader.seek(fixedHeaderBytes);
    while (reader.position() < end) {
      reader.align(8);
      const [name = "", type] = headerFields[reader.scalar("y") as keyof typeof headerFields] ?? [];
      const signature = String(reader.scalar("g"));
      if (signature.length !== 1 || (type ?? signature) !== signature || name in fields) return undefined;
      const value = reader.scalar(signature);
      if (name !== "") fields[name] = value;
    }
    return fields;
  } catch {
    return undefined;
  }
}

/** Decodes a message's values: scalars, and variants of scalars unwrapped. @throws unavailable if the message has other or too
 *  many values, or is truncated. */
export function valuesOf({ signature, body, isLittleEndian }: IncomingMessage): readonly Scalar[] {
  if (signature.length > maxValues) throw notExpected(signature);
  const reader = createReader(body, isLittleEndian);
  return Array.from(signature, (type) => {
    if (type !== "v") return reader.scalar(type);
    const inner = String(reader.scalar("g"));
    if (inner.length !== 1) throw notExpected(inner);
    return reader.scalar(inner);
  });
}

interface Reader {
  position(): number;
  seek(to: number): void;
  align(to: number): void;
  /** @throws unavailable beyond the end, or for a type that is not a scalar. */
  scalar(type: string): Scalar;
}

/** Reads scalars sequentially. */
function createReader(bytes: Uint8Array, isLittleEndian: boolean): Reader {
  const view = viewOf(bytes);
  let at = 0;
  const align = (to: number) => void (at = padded(at, to));
  const take = (length: number): number => {
    const from = at;
    at += length;
    if (at > bytes.length) throw notDBus();
    return from;
  };
  const text = (length: number): string => {
    const from = take(length + 1);
    return Buffer.from(bytes.buffer, bytes.byteOffset + from, length).toString("utf8");
  };
  const number = (length: 2 | 4 | 8): number => {
    align(length);
    return take(length);
  };
  const scalar = (type: string): Scalar => {
    switch (type) {
      case "y":
        return view.getUint8(take(1));
      case "n":
        return view.getInt16(number(2), isLittleEndian);
      case "q":
        return view.getUint16(number(2), isLittleEndian);
      case "b":
        return view.getUint32(number(4), isLittleEndian) !== 0;
      case "i":
        return view.getInt32(number(4), isLittleEndian);
      case "u":
      case "h":
        return view.getUint32(number(4), isLittleEndian);
      case "x":
        return view.getBigInt64(number(8), isLittleEndian);
      case "t":
        return view.getBigUint64(number(8), isLittleEndian);
      case "d":
        return view.getFloat64(number(8), isLittleEndian);
      case "s":
      case "o":
        return text(view.getUint32(number(4), isLittleEndian));
      case "g":
        return text(view.getUint8(take(1)));
      default:
        throw notExpected(type);
    }
  };
  return {
    position: () => at,
    seek: (to: number) => void (at = to),
    align,
    scalar,
  };
}

/** Encodes a call. Its arguments may be of any type except `h`. @throws TypeError for arguments that do not match the
 *  signature. */
export function encodeCall({ serial, signature = "", body = [], ...call }: OutgoingCall): Buffer {
  const values = createWriter();
  values.all(signature, body);
  const encoded = values.bytes();
  const fields = [
    [1, ["o", call.path]],
    [2, ["s", call.interface]],
    [3, ["s", call.member]],
    [6, ["s", call.destination]],
    ...(signature === "" ? [] : [[8, ["g", signature]]]),
  ];
  const [methodCall, noFlags, version] = [1, 0, 1];
  const header = createWriter();
  header.all("yyyyuua(yv)", [littleEndian, methodCall, noFlags, version, encoded.length, serial, fields]);
  header.align(8);
  return Buffer.concat([header.bytes(), encoded]);
}

function createWriter() {
  const parts: Buffer[] = [];
  let length = 0;
  const add = (part: Buffer): Buffer => {
    parts.push(part);
    length += part.length;
    return part;
  };
  const align = (to: number) => void add(Buffer.alloc(padded(length, to) - length));
  /** Reserves an aligned number of that many bytes. @returns the buffer to write it to. */
  const number = (bytes: 1 | 4 | 8): Buffer => {
    align(bytes);
    return add(Buffer.alloc(bytes));
  };
  const text = (value: string, lengthBytes: 1 | 4) => {
    number(lengthBytes).writeUIntLE(Buffer.byteLength(value), 0, lengthBytes);
    add(Buffer.from(`${value}\0`));
  };
  const array = (element: string, values: Iterable<unknown>) => {
    const written = number(4);
    align(alignmentOf(element));
    const begin = length;
    for (const value of values) write(element, value);
    written.writeUInt32LE(length - begin);
  };
  const write = (type: string, value: unknown): void => {
    switch (type[0]) {
      case "y":
        return void number(1).writeUInt8(Number(value));
      case "b":
        return void number(4).writeUInt32LE(value === true ? 1 : 0);
      case "u":
        return void number(4).writeUInt32LE(Number(value));
      case "i":
        return void number(4).writeInt32LE(Number(value));
      case "t":
        return void number(8).writeBigUInt64LE(value as bigint);
      case "s":
      case "o":
        return text(String(value), 4);
      case "g":
        return text(String(value), 1);
      case "a":
        return array(type.slice(1), value as Iterable<unknown>);
      case "(":
        align(8);
        return all(type.slice(1, -1), value as readonly unknown[]);
      case "v": {
        const [inner, of] = value as readonly [string, unknown];
        write("g", inner);
        return write(inner, of);
      }
      default:
        throw new TypeError(`unsupported D-Bus type ${type}`);
    }
  };
  const all = (signature: string, values: readonly unknown[]) => {
    const each = typesOf(signature);
    if (each.length !== values.length) throw new TypeError(`${signature} does not match ${values.length} values`);
    each.forEach((type, index) => write(type, values[index]));
  };
  return { all, align, bytes: () => Buffer.concat(parts) };
}

/** Splits a signature into complete types: `sa(sv)` has `s` and `a(sv)`. */
function typesOf(signature: string): readonly string[] {
  const found: string[] = [];
  let begin = 0;
  let depth = 0;
  Array.from(signature).forEach((character, index) => {
    if (character === "(") depth++;
    if (character === ")") depth--;
    if (depth > 0 || character === "a") return;
    found.push(signature.slice(begin, index + 1));
    begin = index + 1;
  });
  return found;
}

function alignmentOf(type: string): number {
  if ("(t".includes(type[0] ?? "")) return 8;
  return "yvg".includes(type[0] ?? "") ? 1 : 4;
}

function padded(length: number, to: number): number {
  return Math.ceil(length / to) * to;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function notDBus(): CodedError {
  return new CodedError("unavailable", "the system bus sent data that is not D-Bus");
}

function notExpected(signature: string): CodedError {
  return new CodedError("unavailable", `the system bus sent values of unexpected type ${signature.slice(0, 16)}`);
}
