import type { Duplex } from "node:stream";
import { finished } from "node:stream/promises";
import { createToldEnd } from "./spdy/told-end.ts";

/** Joins a SPDY client to the server that runs its command, as splice does; but whatever becomes of the server, the client's connection
 *  ends in good order, and with `status` on the error stream where nobody had said how the command ended: clients take an end
 *  without a status for success. Both are destroyed when it settles.
 *  @param status in the version of the protocol that was agreed on.
 *  @throws the client's error, or AbortError when `signal` aborts. */
export async function spliceCommand(
  client: Duplex,
  server: Duplex,
  status: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const told = createToldEnd(status);
  const broken = (error: unknown) => client.destroy(error instanceof Error ? error : new Error(String(error)));
  const send = (parts: readonly Buffer[]) => parts.reduce((room, part) => client.write(part) && room, true);
  const readOn = () => void server.resume();
  let over = false;
  const end = () => {
    if (over) return;
    over = true;
    // The client's bytes go nowhere any more, and its end is waited for.
    client.unpipe(server).resume();
    if (client.writable) send(told.atEnd());
    client.end();
  };
  server.on("data", (chunk: Buffer) => {
    try {
      if (client.writable && !send(told.fromServer(chunk))) server.pause();
    } catch (error) {
      broken(error);
    }
  });
  client.on("data", (chunk: Buffer) => {
    try {
      told.fromClient(chunk);
    } catch (error) {
      broken(error);
    }
  });
  client.on("drain", readOn);
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
