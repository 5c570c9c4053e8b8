import assert from "node:assert/strict";
import { Duplex } from "node:stream";

/** A client's side of a WebSocket whose binary messages are a stream. The `ws` client cannot ask for a subprotocol with a
 *  slash; so this frames by hand, masked with zeros. */
export function binaryMessages(socket: Duplex): Duplex {
  let buffered: Buffer = Buffer.alloc(0);
  const stream = new Duplex({
    read: () => socket.resume(),
    write(chunk: Buffer, _encoding, done) {
      const head = Buffer.alloc(14);
      head.writeUInt8(0x82, 0);
      head.writeUInt8(0x80 | 127, 1);
      head.writeBigUInt64BE(BigInt(chunk.length), 2);
      socket.write(Buffer.concat([head, chunk]), done);
    },
  });
  socket.on("data", (part: Buffer) => {
    buffered = Buffer.concat([buffered, part]);
    for (let frame = takeFrame(buffered); frame; frame = takeFrame(buffered)) {
      assert.equal(frame.opcode, 2, "messages are binary");
      buffered = frame.rest;
      if (!stream.push(frame.payload)) socket.pause();
    }
  });
  socket.on("close", () => stream.push(null));
  return stream;
}

function takeFrame(bytes: Buffer): { opcode: number; payload: Buffer; rest: Buffer } | undefined {
  if (bytes.length < 2) return undefined;
  const short = bytes.readUInt8(1);
  const extra = short === 126 ? 2 : short === 127 ? 8 : 0;
  if (bytes.length < 2 + extra) return undefined;
  const length = extra === 0 ? short : extra === 2 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
  const start = 2 + extra;
  if (bytes.length < start + length) return undefined;
  return {
    opcode: bytes.readUInt8(0) & 0x0f,
    payload: bytes.subarray(start, start + length),
    rest: bytes.subarray(start + length),
  };
}
