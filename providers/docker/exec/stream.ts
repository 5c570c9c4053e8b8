import type { CommandStreams } from "../../../src/streams/stream-server.ts";
import { startExec } from "./process.ts";
import type { DockerParts } from "../parts.ts";
import { applyTerminalSizes } from "./terminal-size.ts";

/** Connects a prepared command to a client's streams. When the client disappears, a command without a terminal
 *  continues, as with the kubelet; one with a terminal gets SIGHUP.
 *  @returns its exit code. */
export async function streamExec(
  parts: DockerParts,
  command: { readonly id: string; readonly tty: boolean },
  streams: CommandStreams,
  gone: AbortSignal,
): Promise<number> {
  const { tty } = command;
  const running = await startExec(parts, { ...command, forUser: true }, gone);
  const { connection } = running;
  // The output reports its errors.
  connection.on("error", () => undefined);
  const over = new AbortController();
  const sizes = applyTerminalSizes(
    parts,
    `/exec/${running.id}/resize`,
    streams.sizes,
    AbortSignal.any([gone, over.signal]),
  );
  try {
    // With a terminal the daemon would end the output at the end of the input.
    streams.stdin?.pipe(connection, { end: !tty });
    await running.output(streams, gone);
    return await running.ended(gone);
  } catch (error) {
    if (tty && gone.aborted) await running.kill("HUP");
    throw error;
  } finally {
    over.abort();
    streams.stdin?.unpipe(connection);
    connection.destroy();
    await sizes;
  }
}
