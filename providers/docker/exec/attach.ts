import { addAbortSignal } from "node:stream";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { CommandStreams } from "../../../src/streams/stream-server.ts";
import { demultiplex } from "./demultiplex.ts";
import { detachKeys } from "./detach-keys.ts";
import { hijack } from "../client/hijack.ts";
import type { DockerParts } from "../parts.ts";
import { inspectRunning } from "../container/running.ts";
import { applyTerminalSizes } from "./terminal-size.ts";

/** Attaches a client to a container's main process until the process ends, the client's input ends, or the client disconnects. The end of
 *  that input closes the process's stdin only with stdinOnce and without a terminal; otherwise it ends this client's output, as with
 *  containerd.
 *  @returns 0: the container's status has the process's exit code. */
export async function attach(
  parts: DockerParts,
  containerId: string,
  streams: CommandStreams,
  gone: AbortSignal,
): Promise<number> {
  const { docker } = parts;
  const { Tty: tty } = (await inspectRunning(parts, containerId, gone)).Config;
  const path = `/containers/${containerId}`;
  const query = {
    stream: "1",
    stdin: streams.stdin ? "1" : "0",
    stdout: streams.stdout ? "1" : "0",
    stderr: streams.stderr ? "1" : "0",
    detachKeys,
  };
  const connection = await docker.call(
    (_engine, until, _apart, forUser) => hijack(forUser, { path: `${path}/attach`, query, signal: until }),
    gone,
  );
  // The output reports its errors.
  connection.on("error", () => undefined);
  const over = new AbortController();
  const sizes = applyTerminalSizes(parts, `${path}/resize`, streams.sizes, AbortSignal.any([gone, over.signal]));
  try {
    throwIfAborted(gone);
    addAbortSignal(gone, connection);
    // The daemon itself ends the output at the end of an input that it must keep open.
    streams.stdin?.pipe(connection);
    await docker.call(() => demultiplex(connection, { ...streams, tty }, gone), gone, "none");
    await checkResponsive(parts, containerId, gone);
    return 0;
  } finally {
    over.abort();
    streams.stdin?.unpipe(connection);
    connection.destroy();
    await sizes;
  }
}

/** Checks that the daemon still responds: its own end looks like the container's. @throws CodedError unavailable. */
async function checkResponsive(parts: DockerParts, containerId: string, signal: AbortSignal): Promise<void> {
  try {
    await inspectRunning(parts, containerId, signal);
  } catch (error) {
    if (!hasCode(error, "not_found", "failed_precondition")) throw error;
  }
}
