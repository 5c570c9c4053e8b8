import { Duplex } from "node:stream";
import { CodedError } from "../../lib/errors.ts";
import { type Progress, createReplies } from "./replies.ts";
import { type StreamGate, commandGate } from "./stream-gate.ts";

/** Maximum size of unsent replies, bytes; beyond it, the client is not read. */
const mostUnsent = 1 << 16;

/** A client connection on which graftlet accepts every new stream immediately, in place of a distant server: Kubernetes' clients open a
 *  stream only after the previous one was accepted. It also answers pings: a ping that reached a server which has sent everything and
 *  closed, while its last data is still in transit, would make that machine's kernel drop the data. Everything else passes unchanged,
 *  including protocols other than SPDY. Takes the connection over; half-closes, backpressure and ends are the connection's own. A client
 *  that does not read replies is not read either. @param gate may refuse streams; by default a command's gate.
 *  @see https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/ */
export function withEarlyReplies(client: Duplex, gate: StreamGate = commandGate()): Duplex {
  const replies = createReplies(gate);
  const joined = new Duplex({
    allowHalfOpen: true,
    read: () => {
      wanted = true;
      readOn();
    },
    write(chunk: Buffer, _encoding, done) {
      let onward: Buffer;
      try {
        onward = replies.fromServer(chunk);
      } catch (error) {
        return done(asError(error));
      }
      readOn();
      if (onward.length === 0) done();
      else client.write(onward, done);
    },
    final: (done) => void client.end(done),
    destroy(error, done) {
      client.destroy();
      done(error);
    },
  });
  let wanted = false;
  let unsent = 0;
  let waiting = false;
  function readOn(): void {
    if (wanted && !waiting && unsent <= mostUnsent && !replies.isFull()) client.resume();
    else client.pause();
  }
  function send(answer: Buffer): void {
    unsent += answer.length;
    client.write(answer, () => {
      unsent -= answer.length;
      readOn();
    });
  }
  function take(progress: () => Progress): void {
    try {
      const { onward, answer, waits } = progress();
      if (answer.length > 0) send(answer);
      if (onward.length > 0 && !joined.push(onward)) wanted = false;
      waiting = waits !== undefined;
      waits?.then(
        () => void (joined.destroyed || take(replies.goOn)),
        (error: unknown) => joined.destroy(asError(error)),
      );
      readOn();
    } catch (error) {
      joined.destroy(asError(error));
    }
  }
  // The owner of an abandoned connection no longer listens.
  joined.on("error", () => undefined);
  client.pause();
  client.on("data", (chunk: Buffer) => take(() => replies.fromClient(chunk)));
  client.once("end", () => joined.push(null));
  client.on("error", (error) => joined.destroy(error));
  client.once("close", () => void ((client.readableEnded && client.writableFinished) || joined.destroy(brokenOff())));
  return joined;
}

function brokenOff(): CodedError {
  return new CodedError("unavailable", "the client broke the connection off");
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
