import { Duplex } from "node:stream";
import { CodedError } from "../../lib/errors.ts";
import { type ReplyProgress, createReplies } from "./replies.ts";
import { type StreamGate, commandGate } from "./stream-gate.ts";

/** Maximum size of unsent replies, bytes; beyond it, the client is not read. */
const maxUnsentBytes = 1 << 16;

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
      resumeReading();
    },
    write(chunk: Buffer, _encoding, done) {
      let toServer: Buffer;
      try {
        toServer = replies.fromServer(chunk);
      } catch (error) {
        return done(asError(error));
      }
      resumeReading();
      if (toServer.length === 0) done();
      else client.write(toServer, done);
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
  function resumeReading(): void {
    if (wanted && !waiting && unsent <= maxUnsentBytes && !replies.isFull()) client.resume();
    else client.pause();
  }
  function send(answer: Buffer): void {
    unsent += answer.length;
    client.write(answer, () => {
      unsent -= answer.length;
      resumeReading();
    });
  }
  function apply(progress: () => ReplyProgress): void {
    try {
      const { toServer, toClient, pending } = progress();
      if (toClient.length > 0) send(toClient);
      if (toServer.length > 0 && !joined.push(toServer)) wanted = false;
      waiting = pending !== undefined;
      pending?.then(
        () => void (joined.destroyed || apply(replies.resume)),
        (error: unknown) => joined.destroy(asError(error)),
      );
      resumeReading();
    } catch (error) {
      joined.destroy(asError(error));
    }
  }
  // The owner of an abandoned connection no longer listens.
  joined.on("error", () => undefined);
  client.pause();
  client.on("data", (chunk: Buffer) => apply(() => replies.fromClient(chunk)));
  client.once("end", () => joined.push(null));
  client.on("error", (error) => joined.destroy(error));
  client.once(
    "close",
    () => void ((client.readableEnded && client.writableFinished) || joined.destroy(connectionReset())),
  );
  return joined;
}

function connectionReset(): CodedError {
  return new CodedError("unavailable", "the client closed the connection unexpectedly");
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
