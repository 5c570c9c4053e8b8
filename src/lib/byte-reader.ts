import type { Duplex } from "node:stream";
import { type ByteBuffer, createByteBuffer } from "./byte-buffer.ts";

/** The stream ended where more was needed. */
export class EndOfBytes extends Error {
  constructor() {
    super("EOF");
  }
}

/** More bytes were needed than the reader may take. */
export class TooManyBytes extends Error {}

/** Bytes of a connection, read as they are needed. */
export interface ByteReader {
  /** Bytes that may be taken off the connection from now on, those that are buffered included. */
  limit: number;
  /** The next bytes without taking them: at least `least` (fewer where the stream ends), and at most `most`.
   *  @throws the connection's error where none are left; it is thrown once, and then the stream has just ended. */
  peek(least: number, most?: number): Promise<Buffer>;
  /** The next byte where one is buffered, without taking it. */
  byteNow(): number | undefined;
  /** Takes a line where it is buffered in whole, its LF included, as bytes that are one a character. @throws TooManyBytes. */
  lineNow(): string | undefined;
  /** Takes bytes: 1 to `count` as they are there; undefined at the end. @throws the connection's error, TooManyBytes. */
  take(count: number): Promise<Buffer | undefined>;
  /** Takes what is there up to and including a byte: at most `most` bytes, fewer without it where the stream ends.
   *  @throws EndOfBytes, or the connection's error, where the stream ends and nothing is left; TooManyBytes. */
  takeThrough(byte: number, most: number): Promise<Buffer>;
}

const LF = 10;

/** Bytes that are buffered before the connection is no longer read. */
const enough = 64 * 1024;

/** What a connection has sent so far. */
interface Received {
  readonly buffer: ByteBuffer;
  /** Waits until more than `had` bytes are buffered. @returns false where the stream ended with no more. */
  more(had: number): Promise<boolean>;
  /** The error that the connection ended with. It is told once, as by a system call; then the stream has just ended. */
  endError(): Error | undefined;
}

function receive(connection: Duplex): Received {
  const buffer = createByteBuffer();
  const state: { ended: boolean; failure?: Error | undefined; wake: () => void } = { ended: false, wake: () => {} };
  const end = () => {
    state.ended = true;
    state.wake();
  };
  connection.on("data", (chunk: Buffer) => {
    buffer.add(chunk);
    if (buffer.length() >= enough) connection.pause();
    state.wake();
  });
  connection.once("end", end).once("close", end);
  connection.on("error", (error) => {
    state.failure ??= error;
    end();
  });
  return {
    buffer,
    async more(had) {
      while (buffer.length() <= had && !state.ended) {
        const { promise, resolve } = Promise.withResolvers<void>();
        state.wake = resolve;
        connection.resume();
        await promise;
      }
      return buffer.length() > had;
    },
    endError() {
      const error = state.failure;
      state.failure = undefined;
      return error;
    },
  };
}

/** Reads a connection from now on. It has an error listener as long as it lives; whoever opened it ends it. */
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
    byteNow: () => buffer.first(),
    lineNow() {
      const length = buffer.indexOf(LF, 0) + 1;
      if (length > reader.limit) throw new TooManyBytes();
      if (length === 0) return undefined;
      reader.limit -= length;
      return buffer.takeText(length);
    },
    async take(count) {
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
    async takeThrough(byte, most) {
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
