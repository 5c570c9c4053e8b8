import type { Readable, Writable } from "node:stream";
import type { Clock } from "../../lib/clock.ts";
import { CodedError, messageOf } from "../../lib/errors.ts";
import { createTokenBucket } from "../../lib/token-bucket.ts";
import { type IncomingMessage, createMessageReader } from "./wire-format.ts";

/** The two directions of a connection: one duplex stream, or a process's stdin and stdout. */
export interface BusStreams {
  readonly from: Readable;
  readonly to: Writable;
}

/** Maximum handshake size, bytes: it has three short lines. */
const maxHandshakeBytes = 4096;
/** Maximum unsent bytes for a bus that does not read. A call has about 500. */
const maxUnsentBytes = 1 << 20;
/** Rate limit and burst of received messages. Beyond it reading pauses: any user of the target may flood the bus with signals. */
const [messagesPerSecond, messageBurst] = [5_000, 10_000];
const pauseMs = 100;

/** Authenticates as the user that the bus sees at the socket's other end, and reads messages. A client that names a user is
 *  rejected unless it is the connecting process's user, which over SSH is the login's, so none is named: the bus sends an
 *  empty DATA, is answered with another, and uses the socket's credentials.
 *  @see https://dbus.freedesktop.org/doc/dbus-specification.html#auth-mechanisms-external */
export function openBusConnection(
  { from, to }: BusStreams,
  clock: Clock,
  onMessage: (message: IncomingMessage) => void,
) {
  const lost = new AbortController();
  const unsent: Uint8Array[] = [];
  const lose = (error: CodedError) => {
    lost.abort(error);
    from.destroy();
    to.destroy();
  };
  const write = (bytes: Uint8Array | string) => {
    if (lost.signal.aborted) return;
    to.write(bytes);
    if (to.writableLength > maxUnsentBytes)
      lose(new CodedError("unavailable", "the system bus does not read from the connection"));
  };
  const mayRead = createTokenBucket(clock, messagesPerSecond, messageBurst);
  const read = createMessageReader((message) => {
    if (lost.signal.aborted) return;
    if (!mayRead() && !from.isPaused()) {
      from.pause();
      clock.after(pauseMs, () => void from.resume());
    }
    onMessage(message);
  });
  let login: ((chunk: Buffer) => Buffer | undefined) | undefined = createLogin(write, lose);
  from.on("data", (chunk: Buffer) => {
    try {
      const rest = login ? login(chunk) : chunk;
      if (rest === undefined) return;
      if (login) {
        login = undefined;
        unsent.splice(0).forEach(write);
      }
      read(rest);
    } catch (error) {
      lose(error instanceof CodedError ? error : new CodedError("unavailable", messageOf(error), { cause: error }));
    }
  });
  for (const half of new Set([from, to])) {
    half.on("error", (error: Error) => lose(connectionLost(error)));
    half.once("close", () => lose(connectionLost()));
  }
  from.once("end", () => lose(connectionLost()));
  // The protocol starts with a NUL byte.
  write("\0");
  write("AUTH EXTERNAL\r\n");
  return {
    /** Sends bytes; queues them until authentication has succeeded. */
    send: (bytes: Uint8Array) => void (login ? unsent.push(bytes) : write(bytes)),
    /** Aborts when the connection is closed: with permission_denied if the bus rejects graftlet's user, otherwise with
     *  unavailable. */
    lost: lost.signal,
    close: () => lose(connectionLost()),
  };
}

/** The client side of the handshake. @returns a function for each chunk, which returns the remaining bytes once the handshake
 *  is complete. @throws unavailable if the peer is not a bus. */
function createLogin(
  write: (line: string) => void,
  lose: (error: CodedError) => void,
): (chunk: Buffer) => Buffer | undefined {
  let received = Buffer.alloc(0);
  return (chunk) => {
    received = Buffer.concat([received, chunk]);
    for (;;) {
      const end = received.indexOf("\r\n");
      if (end > maxHandshakeBytes || (end < 0 && received.length > maxHandshakeBytes)) throw notABus();
      if (end < 0) return undefined;
      const line = received.toString("latin1", 0, end);
      received = received.subarray(end + 2);
      if (/^OK\b/.test(line)) {
        write("BEGIN\r\n");
        return received;
      }
      if (/^DATA\b/.test(line)) write("DATA\r\n");
      else if (/^REJECTED\b/.test(line)) {
        lose(new CodedError("permission_denied", "the system bus does not accept graftlet's user"));
        return undefined;
      } else throw notABus();
    }
  };
}

function notABus(): CodedError {
  return new CodedError("unavailable", "the peer is not a D-Bus daemon");
}

function connectionLost(cause?: Error): CodedError {
  return new CodedError("unavailable", "the connection to the system bus is lost", { cause });
}
