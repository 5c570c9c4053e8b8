import type { Duplex } from "node:stream";
import { dataFrameHeader, maxDataFrameBytes } from "./frames.ts";

/** Data of at least this size is sent separately from its frame header, to avoid a copy. */
const separateWriteBytes = 1 << 12;

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
  for (; rest.length > maxDataFrameBytes; rest = rest.subarray(maxDataFrameBytes)) {
    socket.write(dataFrameHeader(id, maxDataFrameBytes, false));
    socket.write(rest.subarray(0, maxDataFrameBytes));
  }
  const head = dataFrameHeader(id, rest.length, fin);
  if (rest.length < separateWriteBytes) socket.write(Buffer.concat([head, rest]), done);
  else {
    socket.write(head);
    socket.write(rest, done);
  }
  socket.uncork();
}
