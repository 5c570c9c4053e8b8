import { CodedError } from "./errors.ts";
import { BoundedBuffer } from "./bounded-buffer.ts";

const newline = 0x0a;

/** Splits a stream of chunks into lines. Memory is bounded, and each byte is copied once.
 *  @param maxLineBytes limit of a line without its end.
 *  @param onLine called with each whole line, without its end.
 *  @returns a function to call with each chunk. @throws resource_exhausted for a longer line. */
export function createLineReader(maxLineBytes: number, onLine: (line: string) => void): (chunk: Uint8Array) => void {
  const { linesIn } = createSplitter(maxLineBytes, `a line of more than ${maxLineBytes} bytes`);
  return (chunk) => {
    for (const line of linesIn(chunk)) onLine(line.toString("utf8"));
  };
}

function createSplitter(maxLineBytes: number, tooLong: string) {
  const line = new BoundedBuffer(maxLineBytes);
  const add = (part: Uint8Array) => {
    if (!line.add(part)) throw new CodedError("resource_exhausted", tooLong);
  };
  return {
    /** The line that has begun. */
    line,
    /** The lines that one more chunk completes. */
    *linesIn(chunk: Uint8Array): Generator<Buffer, void, undefined> {
      let from = 0;
      for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, from)) {
        add(chunk.subarray(from, end));
        from = end + 1;
        yield line.take();
      }
      add(chunk.subarray(from));
    },
  };
}

/** Yields the lines of a stream, without their ends; an incomplete last line too. Applies backpressure.
 *  @param maxLineBytes limit of a line. @param tooLong the error's text for a longer one.
 *  @throws resource_exhausted for a longer line; the stream's error. */
export async function* linesOf(
  source: AsyncIterable<Uint8Array>,
  maxLineBytes = Number.POSITIVE_INFINITY,
  tooLong = `a line of more than ${maxLineBytes} bytes`,
): AsyncGenerator<Buffer, void, undefined> {
  const { line, linesIn } = createSplitter(maxLineBytes, tooLong);
  for await (const chunk of source) yield* linesIn(chunk);
  if (line.length > 0) yield line.take();
}
