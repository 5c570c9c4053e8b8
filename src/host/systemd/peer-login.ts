import { Duplex, type Readable, type Writable } from "node:stream";
import { CodedError } from "../../lib/errors.ts";

/** A connection's two directions: one stream for both, or those of a program. */
export interface Wire {
  readonly from: Readable;
  readonly to: Writable;
}

/** Limit of a line of the handshake, bytes. */
const longestLine = 4096;

/** A connection to a bus on which the client logs in as whom the bus sees at the other end. A client of D-Bus names its own
 *  user's ID, and a bus rejects any but that of the process that has connected: over SSH, that is the login's. The rule for a
 *  client that names none: the bus asks by an empty DATA, is answered by another, and takes the socket's.
 *  @see https://dbus.freedesktop.org/doc/dbus-specification.html#auth-mechanisms-external */
export function asPeer({ from, to }: Wire): Duplex {
  let begun = false;
  let heard = "";
  const onLine = (line: string) => {
    if (/^DATA\b/.test(line)) return void to.write("DATA\r\n");
    if (line.startsWith("REJECTED"))
      return void stream.destroy(new CodedError("permission_denied", "the system bus does not accept graftlet's user"));
    stream.push(`${line}\r\n`, "latin1");
  };
  const onHandshake = (chunk: Buffer) => {
    const lines = (heard + chunk.toString("latin1")).split("\r\n");
    heard = lines.pop() ?? "";
    lines.forEach(onLine);
    if (heard.length > longestLine) stream.destroy(new CodedError("unavailable", "this is not a bus"));
  };
  const stream = new Duplex({
    read: () => void from.resume(),
    write(chunk: Buffer, _encoding, done) {
      if (begun) return void to.write(chunk, done);
      const said = chunk.toString("latin1");
      begun = said === "BEGIN\r\n";
      to.write(said.startsWith("AUTH EXTERNAL") ? "AUTH EXTERNAL\r\n" : said, "latin1", done);
    },
    final: (done) => void to.end(done),
    destroy(error, done) {
      from.destroy();
      to.destroy();
      done(error);
    },
  });
  from.on("data", (chunk: Buffer) => {
    if (!begun) onHandshake(chunk);
    else if (!stream.push(chunk)) from.pause();
  });
  from.once("end", () => void stream.push(null));
  for (const half of [from, to]) {
    half.once("close", () => void stream.destroy());
    half.on("error", (error: Error) => void stream.destroy(error));
  }
  stream.once("end", () => void stream.destroy());
  return stream;
}
