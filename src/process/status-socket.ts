import { chmod, mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { type Server, type Socket, createConnection, createServer } from "node:net";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import { isLongSocketPath, maxSocketPathBytes } from "../lib/socket-path.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { FleetReport } from "../report/fleet-report.ts";
import type { Reports } from "../report/notes.ts";
import { type NodeReport, nodeReport } from "../report/node-report.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";

export interface StatusSocketDeps {
  /** Absolute path of the socket, on graftlet's own machine. */
  readonly path: string;
  readonly report: () => ProcessReport;
  readonly log: Logger;
}

/** Maximum number of concurrent callers. */
const maxCallers = 8;
/** Timeout of a status request, milliseconds. */
const requestTimeoutMs = 5_000;

/** Serves the state of the process and its nodes as JSON on a Unix socket, whose mode only admits the process' own
 *  user and root. The socket is created in a private directory and moved to its path. If it cannot be created, a warning is
 *  logged: the nodes do not need it. */
export function createStatusSocket({ path, report, log }: StatusSocketDeps): Runnable {
  return {
    name: "status",
    async run(signal) {
      const callers = new Set<Socket>();
      const server = createServer((socket) => {
        callers.add(socket);
        socket.once("close", () => callers.delete(socket));
        socket.on("error", () => socket.destroy());
        socket.write(`${JSON.stringify(report())}\n`);
        // Closes once the report is written, without waiting for input.
        socket.destroySoon();
      });
      server.maxConnections = maxCallers;
      server.unref();
      try {
        await listenAt(server, path);
      } catch (error) {
        log.warn({ err: error, path }, "cannot create the socket for graftlet status");
        return;
      }
      // The cause may be too many open files; waiting callers are accepted later.
      server.on("error", (err) => log.warn({ err }, "cannot accept a connection for graftlet status"));
      await onAbort(signal);
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const caller of callers) caller.destroy();
      await rm(path, { force: true });
      await closed;
    },
  };
}

/** Listens on the socket. @throws if another process responds on it, or it cannot be created. */
async function listenAt(server: Server, path: string): Promise<void> {
  if (isLongSocketPath(path))
    throw new CodedError(
      "invalid_argument",
      `a socket path may have at most ${maxSocketPathBytes} bytes; choose a shorter one`,
    );
  if (await isInUse(path)) throw new CodedError("already_exists", "another graftlet responds on this socket");
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const folder = await mkdtemp(join(dirname(path), ".s"));
  try {
    const made = join(folder, "s");
    const listening = Promise.withResolvers<void>();
    server.once("error", listening.reject);
    server.listen(made, listening.resolve);
    await listening.promise;
    await chmod(made, 0o600);
    await rename(made, path);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function isInUse(path: string): Promise<boolean> {
  const socket = createConnection(path);
  const answer = Promise.withResolvers<boolean>();
  socket.once("connect", () => answer.resolve(true));
  socket.once("error", () => answer.resolve(false));
  const answered = await answer.promise;
  socket.destroy();
  return answered;
}

/** Reads the report of the process that listens on a socket. @throws CodedError, one sentence, if none responds. */
export async function requestStatus(path: string, clock: Clock, signal: AbortSignal): Promise<ProcessReport> {
  const socket = createConnection({ path, signal: clock.within(requestTimeoutMs, signal) });
  // Reading the socket fails with the same error.
  socket.on("error", () => undefined);
  try {
    return JSON.parse(await text(socket)) as ProcessReport;
  } catch (cause) {
    const remedy = "run this as the user of a running graftlet, with its --cert-dir or --status-socket";
    throw new CodedError("unavailable", `no graftlet responds at ${path} (${messageOf(cause)}): ${remedy}`, { cause });
  }
}

/** State of a process and its nodes, as printed by `graftlet status -o json`. */
export interface ProcessReport {
  readonly version: string;
  readonly kubernetes: string;
  readonly pid: number;
  /** RFC 3339: time of the process start, and of this report. */
  readonly since: string;
  readonly at: string;
  readonly nodes: readonly NodeReport[];
  /** The release, and its machines that this process does not serve; absent if the process serves no GraftedNodes. */
  readonly fleet?: FleetReport;
}

/** Creates the reporter of a process and its nodes. To be called at the process start. */
export function processReport({ nodes, notes, fleet }: Reports, clock: Pick<Clock, "now">): () => ProcessReport {
  const since = rfc3339(clock.now());
  return () => ({
    version: graftletVersion,
    kubernetes: kubeletVersion,
    pid: process.pid,
    since,
    at: rfc3339(clock.now()),
    nodes: nodes.map((node) => nodeReport(node, notes)),
    ...(fleet && { fleet: fleet.report() }),
  });
}
