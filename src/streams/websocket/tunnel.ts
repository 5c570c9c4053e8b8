import { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import { CodedError } from "../../lib/errors.ts";
import { normalClosure } from "./channels.ts";

/** Returns the payload of a WebSocket's binary messages as a stream: a connection within a WebSocket. It ends when the client
 *  closes the WebSocket, and ending it closes the WebSocket. @param ws paused; nothing has been read from it yet.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets */
export function tunnelStream(ws: WebSocket): Duplex {
  const stream = new Duplex({
    read: () => ws.resume(),
    write: (chunk: Buffer, _encoding, done) => ws.send(chunk, done),
    final: (done) => {
      ws.close(normalClosure);
      done();
    },
    destroy: (error, done) => {
      ws.terminate();
      done(error);
    },
  });
  stream.on("error", () => undefined);
  ws.on("message", (data: Buffer, isBinary) => {
    if (!isBinary) stream.destroy(new CodedError("invalid_argument", "the tunnel accepts binary messages only"));
    else if (data.length > 0 && !stream.push(data)) ws.pause();
  });
  ws.once("close", (code) => {
    if (code === normalClosure) stream.push(null);
    else stream.destroy(new CodedError("cancelled", "the client has disconnected"));
  });
  return stream;
}
