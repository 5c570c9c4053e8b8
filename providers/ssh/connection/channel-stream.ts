import { Duplex, Readable } from "node:stream";
import type { ClientChannel } from "ssh2";
import { CodedError, abortError } from "../../../src/lib/errors.ts";

/** What happens to writes after the peer has closed: `drop` discards them, for a command that ends without reading all its input
 *  but whose output matters; `fail` fails them once the peer's output has been read. */
export type LateWrites = "fail" | "drop";

/** The part of a connection that the streams of its channels use: notification of its loss, and flow control. */
export interface ChannelTransport {
  /** Aborts when the connection is lost. */
  readonly lost: AbortSignal;
  /** Registers a listener for the loss of the connection, called at once if it is lost already. Adding and removing take constant time.
   *  @returns a function that removes the listener. */
  onLost(listener: () => void): () => void;
  /** Calls `send` now, or once the peer has read enough of the data sent before. */
  whenWritable(send: () => void): void;
}

/** Wraps a channel as a duplex stream: each direction closes independently, SSH's windows and backpressure bound the memory, and
 *  the loss of the connection is an error for the reader.
 *  @param transport the channel's connection.
 *  @param late handling of writes after the peer has closed. */
export function channelStream(channel: ClientChannel, transport: ChannelTransport, late: LateWrites = "fail"): Duplex {
  let writing: ((error?: Error | null) => void) | undefined;
  let peerClosed = false;
  const subscription: { stop?: () => void } = {};
  // Failing writes earlier would discard output that has not been read yet.
  const lateWriteError = () => (late === "fail" && stream.readableEnded ? peerClosedError() : undefined);
  const stream = new Duplex({
    allowHalfOpen: true,
    read: () => void channel.resume(),
    write(chunk: Buffer, _encoding, done) {
      if (peerClosed) return done(lateWriteError());
      writing = done;
      transport.whenWritable(() => {
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
      subscription.stop?.();
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
    peerClosed = true;
    const waiting = writing;
    writing = undefined;
    waiting?.(lateWriteError());
  });
  subscription.stop = destroyOnLoss(stream, transport);
  return stream;
}

/** Destroys the stream when the connection is lost. The stream's error needs no listener: its user may not be reading at the moment.
 *  @returns a function that removes the listener. */
function destroyOnLoss(stream: Readable, { lost, onLost }: ChannelTransport): () => void {
  stream.on("error", () => undefined);
  return onLost(() => void stream.destroy(connectionLostError(lost)));
}

function peerClosedError(): CodedError {
  return new CodedError("unavailable", "the peer has closed the connection");
}

/** Wraps a channel's standard error as a stream that fails like `channelStream`. */
export function errorStream(channel: ClientChannel, transport: ChannelTransport): Readable {
  const { stderr } = channel;
  const subscription: { stop?: () => void } = {};
  const stream = new Readable({
    read: () => void stderr.resume(),
    destroy(error, done) {
      subscription.stop?.();
      stderr.resume();
      done(error);
    },
  });
  stderr.pause();
  stderr.on("data", (chunk: Buffer) => {
    if (!stream.push(chunk)) stderr.pause();
  });
  stderr.once("end", () => stream.push(null));
  subscription.stop = destroyOnLoss(stream, transport);
  return stream;
}

/** Creates the error of an operation that was interrupted by the loss of its connection. */
export function connectionLostError(lost: AbortSignal): CodedError {
  return new CodedError("unavailable", abortError(lost).message, { cause: lost.reason });
}
