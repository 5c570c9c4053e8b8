import { Duplex, Readable } from "node:stream";
import type { ClientChannel } from "ssh2";
import { CodedError, abortError } from "../../../src/lib/errors.ts";

/** Handling of writes after the peer has closed: `drop` for a command that ended without reading all its input, whose
 *  output still counts; `fail` fails them once the peer's output has been read. */
export type LateWrites = "fail" | "drop";

/** A channel as a duplex stream: each half closes by itself, memory is bounded by SSH's window, and a broken link is an
 *  error for the reader.
 *  @param lost aborts when the channel's connection is lost.
 *  @param late handling of writes after the peer has closed. */
export function channelStream(channel: ClientChannel, lost: AbortSignal, late: LateWrites = "fail"): Duplex {
  let writing: ((error?: Error | null) => void) | undefined;
  let gone = false;
  // A failed write would discard output that has not been read yet.
  const tooLate = () => (late === "fail" && stream.readableEnded ? hungUp() : undefined);
  const stream = new Duplex({
    allowHalfOpen: true,
    read: () => void channel.resume(),
    write(chunk: Buffer, _encoding, done) {
      if (gone) return done(tooLate());
      writing = done;
      channel.write(chunk, () => {
        writing = undefined;
        done();
      });
    },
    final(done) {
      channel.end();
      done();
    },
    destroy(error, done) {
      lost.removeEventListener("abort", onLost);
      // ssh2 reports the close only after all output has been read.
      channel.resume();
      channel.stderr.resume();
      channel.close();
      done(error);
    },
  });
  const onLost = () => void stream.destroy(brokenBy(lost));
  channel.pause();
  channel.on("data", (chunk: Buffer) => {
    if (!stream.push(chunk)) channel.pause();
  });
  channel.once("end", () => stream.push(null));
  channel.on("error", (error: Error) => stream.destroy(error));
  channel.once("close", () => {
    // ssh2 drops a write that waits for window space when the peer closes.
    gone = true;
    writing?.(tooLate());
  });
  return endWith(stream, lost, onLost);
}

/** Ends the stream when the link is lost. Its error needs no listener: the holder may not be reading just now. */
function endWith<T extends Readable>(stream: T, lost: AbortSignal, onLost: () => void): T {
  stream.on("error", () => undefined);
  if (lost.aborted) onLost();
  else lost.addEventListener("abort", onLost, { once: true });
  return stream;
}

function hungUp(): CodedError {
  return new CodedError("unavailable", "the other side has closed the connection");
}

/** A channel's standard error as a stream that fails like channelStream's. */
export function errorStream(channel: ClientChannel, lost: AbortSignal): Readable {
  const { stderr } = channel;
  const stream = new Readable({
    read: () => void stderr.resume(),
    destroy(error, done) {
      lost.removeEventListener("abort", onLost);
      stderr.resume();
      done(error);
    },
  });
  const onLost = () => void stream.destroy(brokenBy(lost));
  stderr.pause();
  stderr.on("data", (chunk: Buffer) => {
    if (!stream.push(chunk)) stderr.pause();
  });
  stderr.once("end", () => stream.push(null));
  return endWith(stream, lost, onLost);
}

/** The error of an operation cut short by a lost connection. */
export function brokenBy(lost: AbortSignal): CodedError {
  return new CodedError("unavailable", abortError(lost).message, { cause: lost.reason });
}
