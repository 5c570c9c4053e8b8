import type { Duplex } from "node:stream";
import { finished } from "node:stream/promises";
import { createStatusGuard } from "./spdy/status-guard.ts";

/** Splices a SPDY client with the server that runs its command. However the server ends, the client's connection ends properly, with
 *  `status` on the error stream if the server sent no result: clients treat an end without a status as success. Both are destroyed when it
 *  settles. @param status in the negotiated protocol version. @throws the client's error, or AbortError when `signal` aborts. */
export async function spliceCommand(
  client: Duplex,
  server: Duplex,
  status: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const guard = createStatusGuard(status);
  const fail = (error: unknown) => client.destroy(error instanceof Error ? error : new Error(String(error)));
  const send = (parts: readonly Buffer[]) => parts.reduce((room, part) => client.write(part) && room, true);
  const resumeReading = () => void server.resume();
  let hasEnded = false;
  const end = () => {
    if (hasEnded) return;
    hasEnded = true;
    // Discards the client's further data and waits for its end.
    client.unpipe(server).resume();
    if (client.writable) send(guard.atEnd());
    client.end();
  };
  server.on("data", (chunk: Buffer) => {
    try {
      if (client.writable && !send(guard.fromServer(chunk))) server.pause();
    } catch (error) {
      fail(error);
    }
  });
  client.on("data", (chunk: Buffer) => {
    try {
      guard.fromClient(chunk);
    } catch (error) {
      fail(error);
    }
  });
  client.on("drain", resumeReading);
  client.pipe(server);
  server.on("error", () => undefined);
  server.once("end", end);
  server.once("close", end);
  if (server.destroyed) end();
  try {
    await finished(client, { signal });
  } finally {
    client.destroy();
    server.destroy();
  }
}
