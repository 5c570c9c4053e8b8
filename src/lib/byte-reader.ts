import type { Duplex } from "node:stream";

/** The stream ended before enough bytes were read. */
export class EndOfBytes extends Error {
  constructor() {
    super("EOF");
  }
}

/** Reading would exceed the reader's limit. */
export class TooManyBytes extends Error {}

/** Reads bytes of a connection on demand. */
export interface ByteReader {
  /** Number of bytes that may still be read, including buffered ones. */
  limit: number;
  /** Returns the next bytes without consuming them: at least `least` (fewer at the end of the stream), at most `most`.
   *  @throws the connection's error if no bytes are left; once only, later calls see the end of the stream. */
  peek(least: number, most?: number): Promise<Buffer>;
  /** The next byte if it is buffered, without consuming it. */
  bufferedByte(): number | undefined;
  /** Reads a line including its LF, as latin1, if all of it is buffered. @throws TooManyBytes. */
  bufferedLine(): string | undefined;
  /** Reads 1 to `count` bytes as they are available; undefined at the end. @throws the connection's error, TooManyBytes. */
  read(count: number): Promise<Buffer | undefined>;
  /** Reads up to and including a byte: at most `most` bytes, fewer if the stream ends first.
   *  @throws EndOfBytes or the connection's error if the stream ends and nothing is left; TooManyBytes. */
  readThrough(byte: number, most: number): Promise<Buffer>;
}

const LF = 10;

/** Pause the connection once this many bytes are buffered. */
const maxBufferedBytes = 64 * 1024;

function receive(connection: Duplex) {
  const buffer = createByteBuffer();
  const state: { ended: boolean; failure?: Error | undefined; wake: () => void } = { ended: false, wake: () => {} };
  const end = () => {
    state.ended = true;
    state.wake();
  };
  connection.on("data", (chunk: Buffer) => {
    buffer.add(chunk);
    if (buffer.length() >= maxBufferedBytes) connection.pause();
    state.wake();
  });
  connection.once("end", end).once("close", end);
  connection.on("error", (error) => {
    state.failure ??= error;
    end();
  });
  return {
    buffer,
    /** Waits until more than `had` bytes are buffered. @returns false if the stream ended first. */
    async more(had: number): Promise<boolean> {
      while (buffer.length() <= had && !state.ended) {
        const { promise, resolve } = Promise.withResolvers<void>();
        state.wake = resolve;
        connection.resume();
        await promise;
      }
      return buffer.length() > had;
    },
    /** The error that the connection ended with. Like a system call, it is reported once; afterwards the stream has simply
     *  ended. */
    endError(): Error | undefined {
      const error = state.failure;
      state.failure = undefined;
      return error;
    },
  };
}

/** Starts reading a connection. Keeps an error listener for the connection's lifetime; the caller closes the connection. */
export function createByteReader(connection: Duplex): ByteReader {
  const { buffer, more, endError } = receive(connection);
  const reader: ByteReader = {
    limit: Number.POSITIVE_INFINITY,
    async peek(least, most = least) {
      while (buffer.length() < least && (await more(buffer.length())));
      const error = buffer.length() === 0 ? endError() : undefined;
      if (error) throw error;
      return buffer.peek(most);
    },
    bufferedByte: () => buffer.first(),
    bufferedLine() {
      const length = buffer.indexOf(LF, 0) + 1;
      if (length > reader.limit) throw new TooManyBytes();
      if (length === 0) return undefined;
      reader.limit -= length;
      return buffer.takeText(length);
    },
    async read(count) {
      if (reader.limit <= 0) throw new TooManyBytes();
      if (!(await more(0))) {
        const error = endError();
        if (error) throw error;
        return undefined;
      }
      const taken = buffer.take(Math.min(count, reader.limit));
      reader.limit -= taken.length;
      return taken;
    },
    async readThrough(byte, most) {
      let searched = 0;
      for (;;) {
        const at = buffer.indexOf(byte, searched);
        const length = at < 0 ? buffer.length() : at + 1;
        if (length > reader.limit) throw new TooManyBytes();
        if (at >= 0 || length >= most) return spend(Math.min(length, most));
        searched = length;
        if (await more(length)) continue;
        const error = endError() ?? new EndOfBytes();
        if (length === 0) throw error;
        return spend(length);
      }
    },
  };
  const spend = (count: number): Buffer => {
    reader.limit -= count;
    return buffer.take(count);
  };
  return reader;
}

/** Received bytes that have not been consumed. One contiguous buffer that doubles as it fills, so that many small chunks cost no more than a few large ones. */
function createByteBuffer() {
  let store = Buffer.alloc(0);
  let [start, end] = [0, 0];
  const peek = (count: number): Buffer => Buffer.from(store.subarray(start, Math.min(start + count, end)));
  return {
    length: () => end - start,
    /** The first index of a byte at or after `from`, or -1. */
    indexOf(byte: number, from: number): number {
      const at = store.indexOf(byte, start + from);
      return at < 0 || at >= end ? -1 : at - start;
    },
    add(chunk: Buffer): void {
      if (end + chunk.length > store.length) {
        const grown = Buffer.alloc(Math.max(4096, 2 * (end - start + chunk.length)));
        store.copy(grown, 0, start, end);
        [store, start, end] = [grown, 0, end - start];
      }
      chunk.copy(store, end);
      end += chunk.length;
    },
    /** The first byte. */
    first: (): number | undefined => (start < end ? store[start] : undefined),
    /** A copy of at most `count` bytes. */
    peek,
    /** Consumes bytes as a latin1 string. */
    takeText(count: number): string {
      const text = store.toString("latin1", start, start + count);
      start += count;
      return text;
    },
    take(count: number): Buffer {
      const taken = peek(count);
      start += taken.length;
      return taken;
    },
  };
}
