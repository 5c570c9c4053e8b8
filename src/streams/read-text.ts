import type { Readable } from "node:stream";
import { finished } from "node:stream/promises";

/** Reads a stream to its end, and keeps at most this many bytes of it. @throws the stream's error. */
export async function readBoundedText(stream: Readable, maxBytes: number): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  stream.on("data", (part: Buffer) => {
    length += part.length;
    if (length <= maxBytes) parts.push(part);
  });
  await finished(stream, { writable: false });
  return Buffer.concat(parts).toString();
}
