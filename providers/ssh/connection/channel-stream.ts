import { Duplex, Readable } from "node:stream";
import type { ClientChannel } from "ssh2";
import { CodedError, abortError } from "../../../src/lib/errors.ts";

/** Handling of writes after the peer has closed: `drop` for a command that ended without reading all its input, whose
 *  output still counts; `fail` fails them once the peer's output has been read. */
export type LateWrites = "fail" | "drop";

/** A channel's connection, as far as its streams use it. */
export interface Carrier {
  /** Aborts when the connection is lost. */
  readonly lost: AbortSignal;
  /** Calls back when the connection is lost, at once if it is. However many listeners there are, adding and removing one takes the same
   *  time. @returns what removes the listener. */
  onLost(listener: () => void): () => void;
  /** Sends now, or once the peer has read enough of what was sent before. */
  whenWritable(send: () => void): void;
}

/** A channel as a duplex stream: each half closes by itself, memory is bounded by SSH's window and by what the peer reads, and a broken
 *  link is an error for the reader.
 *  @param carrier the channel's connection.
 *  @param late handling of writes after the peer has closed. */
export function channelStream(channel: ClientChannel, carrier: Carrier, late: LateWrites = "fail"): Duplex {
  let writing: ((error?: Error | null) => void) | undefined;
  let gone = false;
  const listening: { stop?: () => void } = {};
  // A failed write would discard output that has not been read yet.
  const tooLate = () => (late === "fail" && stream.readableEnded ? hungUp() : undefined);
  const stream = new Duplex({
    allowHalfOpen: true,
    read: () => void channel.resume(),
    write(chunk: Buffer, _encoding, done) {
      if (gone) return done(tooLate());
      writing = done;
      carrier.whenWritable(() => {
        // The channel may have closed meanwhile.
        if (writing !== done) return;
        channel.write(chunk, () => {
          writing = undefined;
          done();
        });
      });
    },
    final(done) {
      channel.end();
      done();
    },
    destroy(error, done) {
      listening.stop?.();
      writing = undefined;
      // ssh2 reports the close only after all output has been read.
      channel.resume();
      channel.stderr.resume();
      channel.close();
      done(error);
    },
  });
  channel.pause();
  channel.on("data", (chunk: Buffer) => {
    if (!stream.push(chunk)) channel.pause();
  });
  channel.once("end", () => stream.push(null));
  channel.on("error", (error: Error) => stream.destroy(error));
  channel.once("close", () => {
    // ssh2 drops a write that waits for window space when the peer closes.
    gone = true;
    const waiting = writing;
    writing = undefined;
    waiting?.(tooLate());
  });
  listening.stop = endWith(stream, carrier);
  return stream;
}

/** Ends the stream when the link is lost. Its error needs no listener: the holder may not be reading just now.
 *  @returns what stops that. */
function endWith(stream: Readable, { lost, onLost }: Carrier): () => void {
  stream.on("error", () => undefined);
  return onLost(() => void stream.destroy(brokenBy(lost)));
}

function hungUp(): CodedError {
  return new CodedError("unavailable", "the other side has closed the connection");
}

/** A channel's standard error as a stream that fails like channelStream's. */
export function errorStream(channel: ClientChannel, carrier: Carrier): Readable {
  const { stderr } = channel;
  const listening: { stop?: () => void } = {};
  const stream = new Readable({
    read: () => void stderr.resume(),
    destroy(error, done) {
      listening.stop?.();
      stderr.resume();
      done(error);
    },
  });
  stderr.pause();
  stderr.on("data", (chunk: Buffer) => {
    if (!stream.push(chunk)) stderr.pause();
  });
  stderr.once("end", () => stream.push(null));
  listening.stop = endWith(stream, carrier);
  return stream;
}

/** The error of an operation cut short by a lost connection. */
export function brokenBy(lost: AbortSignal): CodedError {
  return new CodedError("unavailable", abortError(lost).message, { cause: lost.reason });
}
