import { createServer, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { gzipSync } from "node:zlib";

// Servers of gRPC that lie. Each is given a connection to its socket.

export type Attack = (connection: Socket) => void;

/** Writes what `make` gives for as long as the connection stands, no faster than it is read. */
function forever(connection: Socket, make: () => Buffer): void {
  const write = () => {
    while (!connection.destroyed && connection.write(make()));
  };
  connection.on("drain", write);
  write();
}

const prefix = (bytes: number, compressed = 0) => {
  const head = Buffer.alloc(5);
  head.writeUInt8(compressed, 0);
  head.writeUInt32BE(bytes, 1);
  return head;
};

/** A server that speaks HTTP/2 as it should and answers each call by `answer`. */
function calls(answer: (stream: ServerHttp2Stream) => void, headers: Record<string, string> = {}): Attack {
  const server = createServer();
  server.on("session", (session) => session.on("error", () => undefined));
  server.on("stream", (stream: ServerHttp2Stream) => {
    stream.on("error", () => undefined);
    stream.respond(
      { ":status": 200, "content-type": "application/grpc", "grpc-status": undefined, ...headers },
      { waitForTrailers: true },
    );
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    answer(stream);
  });
  return (connection) => void server.emit("connection", connection);
}

const mebibyte = 1024 * 1024;

/** 16 MiB of empty entries of a field: two bytes each. */
function entries(field: number, bytes = 16 * mebibyte): Buffer {
  const message = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; at += 2) message[at] = (field << 3) | 2;
  return message;
}

function once(message: Buffer): Attack {
  return calls((stream) => stream.end(Buffer.concat([prefix(message.length), message])));
}

/** A stream of an answer that `make` fills for ever. */
function endless(head: Buffer, make: () => Buffer): Attack {
  return calls((stream) => {
    stream.write(head);
    const write = () => {
      while (!stream.destroyed && stream.write(make()));
    };
    stream.on("drain", write);
    write();
  });
}

const zeros = Buffer.alloc(64 * 1024);
const emptyMessages = Buffer.concat(Array.from({ length: 13_000 }, () => prefix(0)));

/** An HTTP/2 frame. @see https://www.rfc-editor.org/rfc/rfc9113#section-4.1 */
function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

const [data, headers, resetStream, settings, pushPromise, ping, goAway, windowUpdate, continuation] = [
  0, 1, 3, 4, 5, 6, 7, 8, 9,
];
const word = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
/** Header fields without indexing: `x: y` again and again. */
const fields = Buffer.concat(Array.from({ length: 2_000 }, () => Buffer.from([0, 1, 0x78, 1, 0x79])));
/** `:status: 103` from the static table's name. */
const informational = Buffer.concat([Buffer.from([0x08, 3]), Buffer.from("103")]);
const many = (one: Buffer) => Buffer.concat(Array.from({ length: Math.ceil(65_536 / one.length) }, () => one));

/** Sends its settings, and once the client has called, frames without end. */
function flood(frames: Buffer, before: Buffer = Buffer.alloc(0)): Attack {
  return (connection) => {
    connection.write(frame(settings, 0, 0));
    connection.once("data", () => {
      setTimeout(() => {
        connection.write(before);
        forever(connection, () => frames);
      }, 50);
      connection.resume();
    });
  };
}

/** As `flood`, and reads nothing that the client answers. */
function deafFlood(frames: Buffer): Attack {
  return (connection) => {
    connection.write(frame(settings, 0, 0));
    connection.once("data", () => {
      connection.pause();
      setTimeout(() => forever(connection, () => frames), 50);
    });
  };
}

export const grpcAttacks: Readonly<Record<string, Attack>> = {
  none: once(Buffer.alloc(0)),
  "empty entries": once(entries(1)),
  "a message of 4 GiB": endless(prefix(0xffff_ffff), () => zeros),
  "an endless message": endless(prefix(16 * mebibyte), () => Buffer.alloc(1)),
  "endless messages": endless(Buffer.alloc(0), () => emptyMessages),
  "endless events": endless(Buffer.alloc(0), () => emptyMessages),
  "slow bytes": calls((stream) => {
    stream.write(prefix(1_000));
    const timer = setInterval(() => stream.write(Buffer.alloc(1)), 50);
    stream.on("close", () => clearInterval(timer));
  }),
  "a message that is compressed a thousand times": calls(
    (stream) => {
      const one = gzipSync(Buffer.alloc(mebibyte));
      const packed = Buffer.concat(Array.from({ length: 64 }, () => one));
      stream.end(Buffer.concat([prefix(packed.length, 1), packed]));
    },
    { "grpc-encoding": "gzip" },
  ),
  "a long status": (() => {
    const server = createServer({ maxSendHeaderBlockLength: 16 * mebibyte });
    server.on("stream", (stream: ServerHttp2Stream) => {
      stream.on("error", () => undefined);
      stream.respond(
        {
          ":status": 200,
          "content-type": "application/grpc",
          "grpc-status": "2",
          "grpc-message": "x".repeat(60_000),
        },
        { endStream: true },
      );
    });
    return (connection) => void server.emit("connection", connection);
  })(),
  silence: (connection) => void connection.resume(),
  "a protocol other than HTTP/2": (connection) =>
    void connection.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
  "an immediate close": (connection) => connection.destroy(),
  garbage: (connection) => forever(connection, () => zeros),
  "endless header fields": flood(
    many(frame(continuation, 0, 1, fields.subarray(0, 10_000))),
    frame(headers, 0, 1, fields.subarray(0, 1_000)),
  ),
  "endless informational responses": flood(many(frame(headers, 4, 1, informational))),
  "endless settings": flood(many(frame(settings, 0, 0))),
  "endless pings": flood(many(frame(ping, 0, 0, Buffer.alloc(8)))),
  "endless pings whose replies are not read": deafFlood(many(frame(ping, 0, 0, Buffer.alloc(8)))),
  "endless stream resets": flood(many(frame(resetStream, 0, 1, word(8)))),
  "endless empty data frames": flood(many(frame(data, 0, 1))),
  "endless window updates": flood(many(frame(windowUpdate, 0, 0, word(1)))),
  "endless unknown frames": flood(many(frame(0x42, 0, 0, Buffer.alloc(8)))),
  "endless push promises": flood(many(frame(pushPromise, 4, 1, Buffer.concat([word(2), Buffer.from([0x82])])))),
  "endless alternative services": flood(
    many(frame(0xa, 0, 0, Buffer.concat([Buffer.from([0, 8]), Buffer.from("http://a"), Buffer.from('h2=":1"')]))),
  ),
  "endless GOAWAY frames": flood(many(frame(goAway, 0, 0, Buffer.concat([word(0), word(0)])))),
};
