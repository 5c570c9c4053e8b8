import { EndOfBytes, TooManyBytes, type ByteReader } from "./byte-reader.ts";
import { goQuoteBytes } from "./go-quote.ts";
import { readHeaderFields, readLine } from "./http1-fields.ts";
import { type HeaderFields, switchesProtocol, trimBlanks, isBlank } from "./http-header.ts";

/** How the end of a body is determined. */
export type BodyEnd = { readonly length: number } | "chunked" | "close";

/** Status and header of a final response. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: HeaderFields;
  readonly bodyEnd: BodyEnd;
}

/** Reads a response to a GET like Go's net/http: accepts and rejects the same input with the same texts, even where that differs
 *  from the standard. Skips informational responses.
 *  @param maxBytes of all headers. @throws Error; the connection's errors. */
export async function readHead(reader: ByteReader, maxBytes: number): Promise<ResponseHead> {
  reader.limit = maxBytes;
  try {
    for (;;) {
      const head = await readOneHead(reader);
      const isInterim = head.status >= 100 && head.status <= 199 && head.status !== 101;
      if (!isInterim) return head;
    }
  } catch (error) {
    if (error instanceof EndOfBytes) throw new Error("unexpected EOF", { cause: error });
    if (error instanceof TooManyBytes)
      throw new Error(`net/http: server response headers exceeded ${maxBytes} bytes; aborted`, { cause: error });
    throw error;
  }
}

async function readOneHead(reader: ByteReader): Promise<ResponseHead> {
  const { status, major, minor } = parseStatusLine(await readLine(reader));
  const headers = await readHeaderFields(reader);
  return { status, headers, bodyEnd: bodyEndOf(status, headers, major > 1 || (major === 1 && minor >= 1)) };
}

function parseStatusLine(line: string): { readonly status: number; readonly major: number; readonly minor: number } {
  const blank = line.indexOf(" ");
  if (blank < 0) throw malformed("HTTP response", line);
  const version = line.slice(0, blank);
  const rest = line.slice(blank).replace(/^ +/, "");
  const code = rest.split(" ", 1)[0] ?? "";
  if (code.length !== 3 || !/^\+?\d+$|^-0+$/.test(code)) throw malformed("HTTP status code", code);
  const [, major, minor] = /^HTTP\/(\d)\.(\d)$/.exec(version) ?? [];
  if (major === undefined || minor === undefined) throw malformed("HTTP version", version);
  return { status: Number(code), major: Number(major), minor: Number(minor) };
}

function malformed(what: string, text: string): Error {
  return new Error(`malformed ${what} ${goQuoteBytes(text)}`);
}

function bodyEndOf(status: number, headers: HeaderFields, hasEncodings: boolean): BodyEnd {
  const isChunked = hasEncodings && isChunkedBy(headers.get("Transfer-Encoding"));
  const length = lengthOf(headers.get("Content-Length") ?? []);
  const isWithoutBody = (status >= 100 && status <= 199) || status === 204 || status === 304;
  if (isChunked) checkTrailer(headers.get("Trailer") ?? []);
  if (isWithoutBody) return { length: 0 };
  if (isChunked) return "chunked";
  return length === undefined ? "close" : { length };
}

function isChunkedBy(encodings: readonly string[] | undefined): boolean {
  if (!encodings) return false;
  const [encoding = ""] = encodings;
  if (encodings.length > 1) throw new Error(`too many transfer encodings: ${goQuoteList(encodings)}`);
  // Not `toLowerCase`: it maps some non-ASCII characters to ASCII.
  if (!/^chunked$/i.test(encoding)) throw new Error(`unsupported transfer encoding: ${goQuoteBytes(encoding)}`);
  return true;
}

const largestLength = 2n ** 63n - 1n;

function lengthOf(values: readonly string[]): number | undefined {
  const [first, ...others] = values.map(trimBlanks);
  if (first === undefined) return undefined;
  if (others.some((other) => other !== first))
    throw new Error(`http: message cannot contain multiple Content-Length headers; got ${goQuoteList(values)}`);
  if (first === "") throw new Error('invalid empty Content-Length ""');
  if (!/^\d+$/.test(first) || first.length > 1000 || BigInt(first) > largestLength)
    throw new Error(`bad Content-Length ${goQuoteBytes(first)}`);
  return Number(first);
}

function checkTrailer(values: readonly string[]): void {
  const names = values.flatMap((value) => value.split(",")).map((name) => trimBlanks(name).toLowerCase());
  const bad = names.find((name) => ["transfer-encoding", "trailer", "content-length"].includes(name));
  if (bad === undefined) return;
  throw new Error(`bad trailer key "${bad.replaceAll(/(^|-)[a-z]/g, (start) => start.toUpperCase())}"`);
}

function goQuoteList(texts: readonly string[]): string {
  return `[${texts.map(goQuoteBytes).join(" ")}]`;
}

/** Reads a body's first bytes.
 *  @param maxBytes where reading ends. @throws Error with Go's text; the connection's errors. */
export async function readBody(
  reader: ByteReader,
  { bodyEnd, status, headers }: ResponseHead,
  maxBytes: number,
): Promise<Buffer> {
  reader.limit = Number.POSITIVE_INFINITY;
  // Another protocol follows, in which the server need not speak first and which need not end.
  if (status === 101 && switchesProtocol(headers)) return Buffer.alloc(0);
  if (bodyEnd === "chunked") return readChunks(reader, maxBytes);
  const declared = bodyEnd === "close" ? undefined : bodyEnd.length;
  const wanted = Math.min(declared ?? maxBytes, maxBytes);
  const parts: Buffer[] = [];
  for (let missing = wanted; missing > 0; ) {
    const part = await reader.read(missing);
    if (!part && declared !== undefined) throw new Error("unexpected EOF");
    if (!part) break;
    parts.push(part);
    missing -= part.length;
  }
  return Buffer.concat(parts);
}

const LF = 10;

/** Maximum bytes of a chunk's size line and of a trailer. */
const maxLine = 4096;

/** Maximum overhead of chunk framing beyond what the chunks' data justifies, bytes. */
const maxExcess = 16 * 1024;

/** Reads a chunked body like Go's net/http: unlike in headers, a line must end with CRLF.
 *  @param maxBytes where reading ends. @throws Error with Go's text; the connection's error. */
async function readChunks(reader: ByteReader, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let missing = maxBytes;
  for (let excess = 0; ; ) {
    const line = await readSizeLine(reader);
    const size = parseSize(line);
    excess = Math.max(0, excess + line.length + 2 - 16 - 2 * size);
    if (excess > maxExcess) throw new Error("chunked encoding contains too much non-data");
    if (size === 0) break;
    const data = await readData(reader, Math.min(size, missing));
    parts.push(data);
    missing -= data.length;
    if (missing === 0) return Buffer.concat(parts);
    await readDataEnd(reader);
  }
  await readTrailer(reader);
  return Buffer.concat(parts);
}

async function readSizeLine(reader: ByteReader): Promise<string> {
  const line = (await reader.readThrough(LF, maxLine).catch(endIsUnexpected)).toString("latin1");
  if (!line.endsWith("\n")) throw new Error(line.length < maxLine ? "unexpected EOF" : "header line too long");
  const carriageReturn = line.indexOf("\r");
  if (carriageReturn < 0) throw new Error("chunked line ends with bare LF");
  if (carriageReturn !== line.length - 2) throw new Error("invalid CR in chunked line");
  return line.slice(0, -2);
}

function endIsUnexpected(error: unknown): never {
  if (error instanceof EndOfBytes) throw new Error("unexpected EOF", { cause: error });
  throw error;
}

/** Parses a chunk size; precision loss of huge values does not matter. */
function parseSize(line: string): number {
  let end = line.length;
  while (isBlank(line[end - 1])) end--;
  const [digits = ""] = line.slice(0, end).split(";", 1);
  if (digits === "") throw new Error("empty hex number for chunk length");
  const bad = /[^0-9a-f]/i.exec(digits)?.index;
  if (bad !== undefined && bad <= 16) throw new Error("invalid byte in chunk length");
  if (digits.length > 16) throw new Error("http chunk length too large");
  return Number.parseInt(digits, 16);
}

async function readData(reader: ByteReader, size: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (let missing = size; missing > 0; ) {
    const part = await reader.read(missing);
    if (!part) throw new Error("unexpected EOF");
    parts.push(part);
    missing -= part.length;
  }
  return Buffer.concat(parts);
}

async function readDataEnd(reader: ByteReader): Promise<void> {
  const end = (await readData(reader, 2)).toString("latin1");
  if (end !== "\r\n") throw new Error("malformed chunked encoding");
}

async function readTrailer(reader: ByteReader): Promise<void> {
  const start = (await reader.peek(2).catch(() => Buffer.alloc(0))).toString("latin1");
  if (start === "\r\n") return;
  if (start.length < 2) throw new Error("http: unexpected EOF reading trailer");
  const upcoming = (await peekThrough(reader, "\r\n\r\n")).toString("latin1");
  if (!upcoming.includes("\r\n\r\n")) throw new Error("http: suspiciously long trailer after chunked body");
  await readHeaderFields(reader);
}

/** Returns the bytes up to and including a text without consuming them: at most `maxLine` bytes. */
async function peekThrough(reader: ByteReader, text: string): Promise<Buffer> {
  for (let least = text.length; ; ) {
    const seen = await reader.peek(least, maxLine);
    if (seen.length < least || seen.length >= maxLine || seen.includes(text)) return seen;
    least = seen.length + 1;
  }
}
