import { type AddressInfo, type Server, type Socket, createServer } from "node:net";
import { CodedError, codeOfErrno, messageOf } from "../lib/errors.ts";
import type { ClockAndLog, Logger } from "../lib/log.ts";
import { onAbort } from "../lib/runnables.ts";
import type { UnauthenticatedConnections } from "./unauthenticated-connections.ts";

/** Listen address, and the names of its configuration fields. */
export interface ListenAddress {
  readonly address: string;
  readonly port: number;
  readonly addressField: string;
  readonly portField: string;
}

/** Timeout for receiving a request, milliseconds; checked every second. No response waits for a request's body. */
export const requestTimes = { headersTimeout: 10_000, requestTimeout: 60_000, connectionsCheckingInterval: 1000 };

/** Time for which current requests may continue once the server stops, milliseconds. */
const shutdownGraceMs = 1000;

export interface ServeOptions extends ClockAndLog {
  readonly server: Server;
  readonly at: ListenAddress;
  readonly unauthenticated: UnauthenticatedConnections;
  readonly listening: Listening;
}

/** Tracks the address that a server listens on. @param name of the server, for the log. */
export function createListening(name: string, log: Logger) {
  const started = Promise.withResolvers<void>();
  let bound: AddressInfo | undefined;
  return {
    /** Resolves once the server listens for the first time. */
    ready: () => started.promise,
    /** Undefined while the server does not listen. */
    address: () => bound,
    set(at: AddressInfo | undefined): void {
      bound = at;
      if (!at) return;
      log.info({ address: at.address, port: at.port }, `${name} listening`);
      started.resolve();
    },
  };
}

export type Listening = ReturnType<typeof createListening>;

/** Serves until the signal aborts, then closes every connection. @throws CodedError, naming the field, the value and the
 *  remedy, if it cannot listen. */
export async function serveHttps(
  { server, at, unauthenticated, listening, clock, log }: ServeOptions,
  signal: AbortSignal,
): Promise<void> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => {
    sockets.add(socket);
    unauthenticated.accept(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await listen(server, at);
  // For example too many open files: pending connections are accepted later.
  server.on("error", (err) => log.warn({ err, port: at.port }, "cannot accept connection"));
  const address = server.address();
  if (typeof address === "object" && address) listening.set(address);
  await onAbort(signal);
  const closed = new AbortController();
  const closing = new Promise<void>((resolve) => server.close(() => resolve())).then(() => closed.abort());
  await clock.sleep(shutdownGraceMs, closed.signal).catch(() => {});
  for (const socket of sockets) socket.destroy();
  await closing;
  listening.set(undefined);
}

/** Checks whether an address can be listened on. @throws CodedError already_exists if the port is in use; else as `serveHttps`. */
export async function tryListening(at: ListenAddress): Promise<void> {
  const server = createServer();
  await listen(server, at);
  await new Promise((resolve) => server.close(resolve));
}

async function listen(server: Server, { address, port, addressField, portField }: ListenAddress): Promise<void> {
  const listening = Promise.withResolvers<void>();
  server.once("error", listening.reject);
  server.listen({ host: address, port }, listening.resolve);
  try {
    await listening.promise;
  } catch (cause) {
    const errno = cause instanceof Error && "code" in cause ? String(cause.code) : undefined;
    throw listenError(errno, { address, port, addressField, portField }, cause);
  } finally {
    server.off("error", listening.reject);
  }
}

function listenError(
  errno: string | undefined,
  { address, port, addressField, portField }: ListenAddress,
  cause: unknown,
): CodedError {
  switch (errno) {
    case "EADDRINUSE": {
      const remedy = `stop the program that listens there (another kubelet?) or set another ${portField}`;
      return new CodedError("already_exists", `${portField} ${port} is taken on ${address}: ${remedy}`, { cause });
    }
    case "EACCES":
      return new CodedError(
        "permission_denied",
        `${portField} ${port} requires privileges: run as root or set a ${portField} above 1023`,
        { cause },
      );
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return new CodedError(
        "invalid_argument",
        `${addressField} "${address}" is not an address of this machine: set one of its addresses, or 0.0.0.0`,
        { cause },
      );
    default:
      return new CodedError(
        codeOfErrno(errno),
        `cannot listen on ${address} with ${portField} ${port}: ${messageOf(cause)}`,
        { cause },
      );
  }
}
