import { constants, deflateRawSync, inflateRawSync } from "node:zlib";
import { CodedError } from "../../lib/errors.ts";
import { dictionary, dictionaryId } from "./dictionary.ts";

/** Headers of a stream, names in lower case. Values of a repeated name are joined by NUL. */
export type Headers = ReadonlyMap<string, string>;

/** Size of zlib's window. */
const windowBytes = 1 << 15;
/** Maximum size of a decompressed header block: Kubernetes sends a few hundred bytes. Streams keep theirs in memory. */
const maxBlockBytes = 1 << 12;
/** zlib's header: deflate, window of 32 KiB, best compression, with a dictionary. */
const zlibHeader = Buffer.from([0x78, 0xf9]);
/** zlib's flag for a dictionary, in the second byte. */
const hasDictionary = 0x20;

/** Compresses the header blocks of one direction of a connection. They share one zlib stream, flushed to a byte boundary after each
 *  block; a block is therefore raw deflate with the previous blocks as its dictionary. */
export function createHeaderWriter(): { write(headers: Headers): Buffer } {
  let past = dictionary;
  const dictionaryName = Buffer.alloc(4);
  dictionaryName.writeUInt32BE(dictionaryId);
  let zlibPrefix = Buffer.concat([zlibHeader, dictionaryName]);
  return {
    write(headers) {
      const plain = encode(headers);
      const compressed = deflateRawSync(plain, { dictionary: past, finishFlush: constants.Z_SYNC_FLUSH });
      const block = Buffer.concat([zlibPrefix, compressed]);
      past = appendHistory(past, plain);
      zlibPrefix = Buffer.alloc(0);
      return block;
    },
  };
}

/** Decompresses the header blocks of one direction of a connection: needs every block, in order. */
export function createHeaderReader(): {
  /** @throws CodedError invalid_argument for an invalid header block, or one of more than 4 KiB. */
  read(block: Buffer): Headers;
} {
  let past: Buffer | undefined;
  return {
    read(block) {
      const { before, raw } = past ? { before: past, raw: block } : afterZlibHeader(block);
      const plain = inflate(raw, before);
      past = appendHistory(before, plain);
      return decode(plain);
    },
  };
}

function afterZlibHeader(block: Buffer): { before: Buffer; raw: Buffer } {
  if (block.length < 2 || block.readUInt16BE(0) % 31 !== 0 || (block.readUInt8(0) & 0x0f) !== 8) throw malformed();
  if ((block.readUInt8(1) & hasDictionary) === 0) return { before: Buffer.alloc(0), raw: block.subarray(2) };
  if (block.length < 6 || block.readUInt32BE(2) !== dictionaryId) throw malformed();
  return { before: dictionary, raw: block.subarray(6) };
}

function inflate(raw: Buffer, before: Buffer): Buffer {
  try {
    return inflateRawSync(raw, {
      ...(before.length > 0 && { dictionary: before }),
      finishFlush: constants.Z_SYNC_FLUSH,
      maxOutputLength: maxBlockBytes,
    });
  } catch (cause) {
    throw malformed(cause);
  }
}

function appendHistory(past: Buffer, plain: Buffer): Buffer {
  const all = Buffer.concat([past, plain]);
  return all.length > windowBytes ? Buffer.from(all.subarray(-windowBytes)) : all;
}

function encode(headers: Headers): Buffer {
  const count = Buffer.alloc(4);
  count.writeUInt32BE(headers.size);
  return Buffer.concat([
    count,
    ...[...headers].flatMap(([name, value]) => [...encodeString(name), ...encodeString(value)]),
  ]);
}

function encodeString(value: string): [Buffer, Buffer] {
  const bytes = Buffer.from(value, "latin1");
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return [length, bytes];
}

function decode(plain: Buffer): Headers {
  let at = 0;
  const number = () => {
    if (at + 4 > plain.length) throw malformed();
    at += 4;
    return plain.readUInt32BE(at - 4);
  };
  const string = () => {
    const length = number();
    if (at + length > plain.length) throw malformed();
    at += length;
    return plain.toString("latin1", at - length, at);
  };
  const headers = new Map<string, string>();
  for (let left = number(); left > 0; left--) {
    const name = string().toLowerCase();
    if (name === "" || headers.has(name)) throw malformed();
    headers.set(name, string());
  }
  if (at !== plain.length) throw malformed();
  return headers;
}

function malformed(cause?: unknown): CodedError {
  return new CodedError("invalid_argument", "SPDY header block is malformed or too long", { cause });
}
