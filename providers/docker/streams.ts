import { type Duplex, addAbortSignal } from "node:stream";
import type { AttachRequest, ExecRequest, PortForwardRequest } from "../../src/gen/cri.ts";
import type { CommandStreams, RunCommand, Streams, TerminalSize } from "../../src/seams/runtime.ts";
import { createExec, startExec } from "./exec/process.ts";
import type { DockerParts } from "./parts.ts";
import { createPortRelay } from "./port-forward/relay.ts";
import { sandboxType } from "./container/names.ts";
import { inspectRunning } from "./container/running.ts";
import { ignoreCode, messageOf, throwIfAborted } from "../../src/lib/errors.ts";
import { demultiplex } from "./exec/demultiplex.ts";
import { detachKeys, hijack } from "./client/hijack.ts";

/** exec, attach and port-forward. A request fails before the client is served if the container is missing (not_found) or not
 *  running (failed_precondition). Disposal ends the commands and waits for them. */
export function dockerStreams(parts: DockerParts): Streams & AsyncDisposable {
  const connectTo = createPortRelay(parts);
  const closed = new AbortController();
  const running = new Set<Promise<number>>();
  const owned = (run: RunCommand): RunCommand => {
    return (streams, gone) => {
      const ended = run(streams, AbortSignal.any([gone, closed.signal])).finally(() => running.delete(ended));
      running.add(ended);
      return ended;
    };
  };
  return {
    async exec(request: ExecRequest, signal) {
      const { containerId, cmd: argv, tty, stdin, stdout, stderr } = request;
      const id = await createExec(parts, { containerId, argv, tty, stdin, stdout, stderr }, signal);
      return owned((streams, gone) => streamExec(parts, { id, tty }, streams, gone));
    },
    async attach(request: AttachRequest, signal) {
      await inspectRunning(parts, request.containerId, signal);
      return owned((streams, gone) => attach(parts, request.containerId, streams, gone));
    },
    async portForward({ podSandboxId }: PortForwardRequest, signal) {
      await inspectRunning(parts, podSandboxId, signal, sandboxType);
      return (port, gone) => connectTo(podSandboxId, port, gone);
    },
    async [Symbol.asyncDispose]() {
      closed.abort();
      await Promise.allSettled(running);
    },
  };
}

/** Attaches a client to a container's main process until the process ends, the client's input ends, or the client disconnects.
 *  The end of that input closes the process's stdin only with stdinOnce and without a terminal; otherwise it ends this client's
 *  output, as with containerd.
 *  @returns 0, as the process's exit code is in the container's status. */
async function attach(
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
  return serveConnection(parts, { connection, path, streams, gone }, async () => {
    throwIfAborted(gone);
    addAbortSignal(gone, connection);
    // If the process's stdin must stay open at the end of the client's input, the daemon ends the output instead.
    streams.stdin?.pipe(connection);
    await docker.call(() => demultiplex(connection, { ...streams, tty }, gone), gone, "none");
    // If the daemon stops, the stream ends as if the container had ended, so check the container.
    await ignoreCode(inspectRunning(parts, containerId, gone), "not_found", "failed_precondition");
    return 0;
  });
}

/** Serves a client's connection to a command or process while the work runs, and applies the client's terminal sizes.
 *  @param path Engine API path of the exec or container. */
async function serveConnection(
  parts: DockerParts,
  { connection, path, streams, gone }: { connection: Duplex; path: string; streams: CommandStreams; gone: AbortSignal },
  work: () => Promise<number>,
): Promise<number> {
  // The reader of the output gets the connection's errors.
  connection.on("error", () => undefined);
  const over = new AbortController();
  const sizes = applyTerminalSizes(parts, `${path}/resize`, streams.sizes, AbortSignal.any([gone, over.signal]));
  try {
    return await work();
  } finally {
    over.abort();
    streams.stdin?.unpipe(connection);
    connection.destroy();
    await sizes;
  }
}

/** Connects a prepared command to a client's streams. When the client disappears, a command without a terminal continues, as with
 *  the kubelet; one with a terminal gets SIGHUP.
 *  @returns the command's exit code. */
async function streamExec(
  parts: DockerParts,
  command: { readonly id: string; readonly tty: boolean },
  streams: CommandStreams,
  gone: AbortSignal,
): Promise<number> {
  const { tty } = command;
  const running = await startExec(parts, { ...command, forUser: true }, gone);
  const { connection } = running;
  return serveConnection(parts, { connection, path: `/exec/${running.id}`, streams, gone }, async () => {
    try {
      // With a terminal, the daemon would end the output at the end of the input, so that end is not passed on.
      streams.stdin?.pipe(connection, { end: !tty });
      await running.output(streams, gone);
      return await running.ended(gone);
    } catch (error) {
      if (tty && gone.aborted) await running.kill("HUP");
      throw error;
    }
  });
}

/** Applies a client's terminal sizes until there are no more or the signal aborts. Never throws: a failed resize (the
 *  command has just ended) has no effect.
 *  @param path of the daemon's resize call. */
async function applyTerminalSizes(
  { docker, log }: DockerParts,
  path: string,
  sizes: AsyncIterable<TerminalSize>,
  signal: AbortSignal,
): Promise<void> {
  const { promise: stopped, resolve: stop } = Promise.withResolvers<undefined>();
  signal.addEventListener("abort", () => stop(undefined), { once: true });
  const iterator = sizes[Symbol.asyncIterator]();
  while (!signal.aborted) {
    const next = await Promise.race([iterator.next(), stopped]);
    if (!next || next.done) return;
    const { width, height } = next.value;
    await docker
      .request({ method: "POST", path, query: { w: width, h: height } }, signal)
      .catch((error: unknown) => log.debug({ path, why: messageOf(error) }, "cannot set terminal size"));
  }
}
