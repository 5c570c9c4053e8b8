import type { Duplex } from "node:stream";
import { dataHead, longestData } from "./frames.ts";

/** Data of at least this size is sent separately from its frame header, to avoid a copy. */
const worthNoCopy = 1 << 12;

/** Data to send on a stream. */
export interface OutgoingData {
  readonly id: number;
  readonly data: Buffer;
  /** True for the stream's last data. */
  readonly fin: boolean;
}

/** Sends data in frames of at most 64 KiB; calls back when the transport has accepted all. */
export function sendData(socket: Duplex, { id, data, fin }: OutgoingData, done: (error?: Error | null) => void): void {
  socket.cork();
  let rest = data;
  for (; rest.length > longestData; rest = rest.subarray(longestData)) {
    socket.write(dataHead(id, longestData, false));
    socket.write(rest.subarray(0, longestData));
  }
  const head = dataHead(id, rest.length, fin);
  if (rest.length < worthNoCopy) socket.write(Buffer.concat([head, rest]), done);
  else {
    socket.write(head);
    socket.write(rest, done);
  }
  socket.uncork();
}
