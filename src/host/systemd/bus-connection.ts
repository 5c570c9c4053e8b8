import type { Readable, Writable } from "node:stream";
import type { Clock } from "../../lib/clock.ts";
import { CodedError, messageOf } from "../../lib/errors.ts";
import { createTokenBucket } from "../../lib/token-bucket.ts";
import { type IncomingMessage, createMessageReader } from "./wire-format.ts";

/** A connection's two directions: one stream for both, or those of a program. */
export interface Wire {
  readonly from: Readable;
  readonly to: Writable;
}

/** A connection to a bus, which logs in by itself. */
export interface BusConnection {
  /** Sends bytes, once the bus has accepted the login. */
  send(bytes: Uint8Array): void;
  /** Aborts when the connection is closed: with permission_denied when the bus refuses graftlet's user, else with unavailable. */
  readonly lost: AbortSignal;
  close(): void;
}

/** Longest handshake, bytes: three short lines. */
const maxHandshakeBytes = 4096;
/** Bytes that wait for a bus that does not read. A call has some 500. */
const maxUnsentBytes = 1 << 20;
/** Messages a second, and at once. Beyond them reading pauses: any user of the target may send signals without end. */
const [messagesPerSecond, messageBurst] = [5_000, 10_000];
const pauseMs = 100;

/** Logs in on a bus as the user whom the bus sees at the other end, and reads its messages. A client that names a user is refused unless
 *  that is the process that has connected, which over SSH is the login's: so none is named. The bus asks by an empty DATA, is answered
 *  by another, and takes the socket's user.
 *  @see https://dbus.freedesktop.org/doc/dbus-specification.html#auth-mechanisms-external */
export function openBusConnection(
  { from, to }: Wire,
  clock: Clock,
  heard: (message: IncomingMessage) => void,
): BusConnection {
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
    if (to.writableLength > maxUnsentBytes) lose(new CodedError("unavailable", "the system bus does not read"));
  };
  const mayRead = createTokenBucket(clock, messagesPerSecond, messageBurst);
  const read = createMessageReader((message) => {
    if (lost.signal.aborted) return;
    if (!mayRead() && !from.isPaused()) {
      from.pause();
      clock.after(pauseMs, () => void from.resume());
    }
    heard(message);
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
  // A nul byte comes before all else.
  write("\0");
  write("AUTH EXTERNAL\r\n");
  return {
    send: (bytes) => void (login ? unsent.push(bytes) : write(bytes)),
    lost: lost.signal,
    close: () => lose(connectionLost()),
  };
}

/** The client's part of the handshake.
 *  @returns takes each chunk, and returns what follows the handshake once that is over. @throws unavailable when this is no bus. */
function createLogin(
  write: (line: string) => void,
  lose: (error: CodedError) => void,
): (chunk: Buffer) => Buffer | undefined {
  let said = Buffer.alloc(0);
  return (chunk) => {
    said = Buffer.concat([said, chunk]);
    for (;;) {
      const end = said.indexOf("\r\n");
      if (end > maxHandshakeBytes || (end < 0 && said.length > maxHandshakeBytes)) throw notABus();
      if (end < 0) return undefined;
      const line = said.toString("latin1", 0, end);
      said = said.subarray(end + 2);
      if (/^OK\b/.test(line)) {
        write("BEGIN\r\n");
        return said;
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
  return new CodedError("unavailable", "this is not a bus");
}

function connectionLost(cause?: Error): CodedError {
  return new CodedError("unavailable", "the connection to the system bus is lost", { cause });
}
