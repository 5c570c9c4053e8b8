import { EndOfBytes, type ByteReader } from "./byte-reader.ts";
import { isBlank } from "./http-header.ts";
import { readHeaderFields } from "./http1-fields.ts";

const LF = 10;

/** Maximum bytes of a chunk's size line and of a trailer. */
const maxLine = 4096;

/** Maximum overhead of chunk framing beyond what the chunks' data justifies, bytes. */
const maxExcess = 16 * 1024;

/** Reads a chunked body like Go's net/http: unlike in headers, a line must end with CRLF.
 *  @param maxBytes where reading ends. @throws Error with Go's text; the connection's error. */
export async function readChunks(reader: ByteReader, maxBytes: number): Promise<Buffer> {
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
