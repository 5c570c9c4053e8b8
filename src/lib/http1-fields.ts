import type { ByteReader } from "./byte-reader.ts";
import { goQuoteBytes } from "./go-quote.ts";
import {
  type HeaderFields,
  canonicalHeaderName,
  isBlank,
  isHeaderName,
  isHeaderValue,
  trimBlanks,
} from "./http-header.ts";

const [LF, SP, TAB] = [10, 32, 9];

/** Extra bytes charged for each header line, so that many short lines cost no more time than a few long ones. */
const lineCost = 100;

/** Reads a line without its LF or CRLF, as latin1; at the end of the stream the remaining bytes.
 *  @throws EndOfBytes, TooManyBytes, the connection's error. */
export async function readLine(reader: ByteReader): Promise<string> {
  const line = reader.bufferedLine() ?? (await reader.readThrough(LF, Number.POSITIVE_INFINITY)).toString("latin1");
  return withoutEnd(line);
}

function withoutEnd(line: string): string {
  if (line.endsWith("\r\n")) return line.slice(0, -2);
  return line.endsWith("\n") ? line.slice(0, -1) : line;
}

/** Reads header fields up to and including the empty line, as Go's net/textproto does.
 *  @throws Error with its text; EndOfBytes, TooManyBytes, the connection's error. */
export async function readHeaderFields(reader: ByteReader): Promise<HeaderFields> {
  const fields = new Map<string, string[]>();
  if (await startsWithBlank(reader)) throw malformedFirst(await readLine(reader));
  for (;;) {
    const line = await readContinuedLine(reader);
    if (line === "") return fields;
    const { name, value } = parseField(line);
    const values = fields.get(name);
    if (values) values.push(value);
    else fields.set(name, [value]);
  }
}

/** True if the next byte is a space or tab; false also if the connection broke, which the next read reports. */
async function startsWithBlank(reader: ByteReader): Promise<boolean> {
  const next = await reader.peek(1).catch(() => Buffer.alloc(0));
  return isBlank(next.toString("latin1"));
}

const maxQuotedLine = 80;

function malformedFirst(line: string): Error {
  if (line.length > maxQuotedLine) return new Error("message too large");
  return new Error(`malformed MIME header initial line: ${goQuoteBytes(line)}`);
}

/** Reads a line with its continuation lines, which begin with a blank. Buffered data is read without awaiting. */
async function readContinuedLine(reader: ByteReader): Promise<string> {
  reader.limit -= lineCost;
  const buffered = reader.bufferedLine();
  const first = buffered === undefined ? await readLine(reader) : withoutEnd(buffered);
  if (first === "") return "";
  if (!first.includes(":")) throw new Error(`malformed MIME header: missing colon: ${goQuoteBytes(first)}`);
  const parts = [trimBlanks(first)];
  for (;;) {
    const next = reader.bufferedByte();
    if (next === undefined ? !(await startsWithBlank(reader)) : next !== SP && next !== TAB) break;
    reader.limit -= lineCost;
    const more = reader.bufferedLine();
    parts.push(trimBlanks(more === undefined ? await readLine(reader) : withoutEnd(more)));
  }
  return parts.join(" ");
}

/** A name with a blank is accepted, but matches no known name. */
function parseField(line: string): { readonly name: string; readonly value: string } {
  const colon = line.indexOf(":");
  const name = line.slice(0, colon);
  const value = line.slice(colon + 1);
  const isName = name !== "" && (name.replaceAll(" ", "") === "" || isHeaderName(name.replaceAll(" ", "")));
  const known = canonicalHeaderName(name);
  if (!isName || !isHeaderValue(value))
    throw new Error(`malformed MIME header line: ${goQuoteBytes(`${known}:${value}`)}`);
  return { name: known, value: trimBlanksBefore(value) };
}

function trimBlanksBefore(text: string): string {
  return text.replace(/^[ \t]+/, "");
}
