import { Duplex, Readable } from "node:stream";
import type { ClientChannel } from "ssh2";
import { CodedError, abortError } from "../../../src/lib/errors.ts";

/** `drop`: for a command that ended without reading all, whose output is wanted all the same. With `fail` too a write after the
 *  other side has gone fails only once all that it said has been read. */
export type LateWrites = "fail" | "drop";

/** A channel as a connection: each half closes by itself, no more than SSH's window is held in memory, and a link that breaks fails
 *  the reader instead of ending quietly.
 *  @param lost aborts when the channel's connection is gone.
 *  @param late what becomes of writes after the other side has gone for good. */
export function channelStream(channel: ClientChannel, lost: AbortSignal, late: LateWrites = "fail"): Duplex {
  let writing: ((error?: Error | null) => void) | undefined;
  let gone = false;
  // A failed write would throw away what the other side has said and nobody has read yet.
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
      // Its close is told only once all that it said has been taken.
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
    // ssh2 forgets a write that waits for room when the other side goes for good.
    gone = true;
    writing?.(tooLate());
  });
  return endWith(stream, lost, onLost);
}

/** A broken link is no fault of whoever holds a stream and does not read it just now: nobody need listen for its error. */
function endWith<T extends Readable>(stream: T, lost: AbortSignal, onLost: () => void): T {
  stream.on("error", () => undefined);
  if (lost.aborted) onLost();
  else lost.addEventListener("abort", onLost, { once: true });
  return stream;
}

function hungUp(): CodedError {
  return new CodedError("unavailable", "the other side has closed the connection");
}

/** What a channel says on its standard error, under the same promises. */
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

/** The error of what a lost connection cuts short. */
export function brokenBy(lost: AbortSignal): CodedError {
  return new CodedError("unavailable", abortError(lost).message, { cause: lost.reason });
}
