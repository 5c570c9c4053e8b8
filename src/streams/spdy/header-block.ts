import { constants, deflateRawSync, inflateRawSync } from "node:zlib";
import { CodedError } from "../../lib/errors.ts";

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

/** Words of SPDY/3's dictionary in the format of header blocks: each after its length in four bytes. */
const words = [
  ["options", "head", "post", "put", "delete", "trace"],
  ["accept", "accept-charset", "accept-encoding", "accept-language", "accept-ranges", "age", "allow", "authorization"],
  ["cache-control", "connection", "content-base", "content-encoding", "content-language", "content-length"],
  ["content-location", "content-md5", "content-range", "content-type", "date", "etag", "expect", "expires", "from"],
  ["host", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified"],
  ["location", "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "referer"],
  ["retry-after", "server", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning"],
  ["www-authenticate", "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie"],
  ["keep-alive", "origin"],
].flat();

/** The dictionary's remainder: plain text. */
const text = [
  "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505",
  "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden",
  "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable",
  "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT",
  "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,",
  "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
].join("");

/** The preset zlib dictionary of SPDY/3 header blocks.
 *  @see https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/ (2.6.10.1 Compression) */
export const dictionary: Buffer = Buffer.concat([
  ...words.flatMap((word) => [length(word), Buffer.from(word)]),
  Buffer.from(text),
]);

/** The dictionary's ID in a zlib header: its Adler-32. */
export const dictionaryId = 0xe3c6a7c2;

function length(word: string): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(word.length);
  return bytes;
}
