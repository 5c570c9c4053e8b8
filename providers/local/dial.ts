import { constants } from "node:fs";
import { open as openFile } from "node:fs/promises";
import { type NetConnectOpts, type Socket, createServer, connect } from "node:net";
import { parse } from "node:path";
import type { Duplex } from "node:stream";
import { isLongSocketPath } from "../../src/lib/socket-path.ts";
import { CodedError, abortError, throwIfAborted } from "../../src/lib/errors.ts";
import type { Address, HostListener } from "../../src/seams/host.ts";
import { codedError } from "./errors.ts";

/** Connects from this machine. @see Host.dial */
export async function dialLocal(to: Address, signal?: AbortSignal): Promise<Duplex> {
  throwIfAborted(signal);
  if (!("unix" in to)) return connectTo(to, { host: to.host, port: to.port, noDelay: true }, signal);
  if (!isLongSocketPath(to.unix)) return connectTo(to, { path: to.unix }, signal);
  const { dir, base } = parse(to.unix);
  await using directory = await openFile(dir, constants.O_DIRECTORY).catch((error: unknown) => {
    throw dialError(to, error);
  });
  return await connectTo(to, { path: `/proc/self/fd/${directory.fd}/${base}` }, signal);
}

function connectTo(to: Address, options: NetConnectOpts, signal: AbortSignal | undefined): Promise<Duplex> {
  const socket = connect({ ...options, allowHalfOpen: true });
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      socket.destroy();
      if (signal) reject(abortError(signal));
    };
    const done = () => signal?.removeEventListener("abort", onAbort);
    signal?.addEventListener("abort", onAbort, { once: true });
    socket.once("error", (error) => {
      done();
      reject(dialError(to, error));
    });
    socket.once("connect", () => {
      done();
      resolve(socket);
    });
  });
}

/** Listens on this machine. @see Host.listen */
export async function listenLocal(
  at: Address,
  onConnection: (connection: Duplex) => void,
  signal?: AbortSignal,
): Promise<HostListener> {
  throwIfAborted(signal);
  const open = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
    onConnection(socket);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(codedError(formatAddress(at), error)));
    server.listen("unix" in at ? { path: at.unix } : at, resolve);
  });
  const onAbort = () => void close();
  const close = () =>
    new Promise<void>((resolve) => {
      signal?.removeEventListener("abort", onAbort);
      server.close(() => resolve());
      for (const socket of open) socket.destroy();
    });
  signal?.addEventListener("abort", onAbort, { once: true });
  const bound = server.address();
  const address = typeof bound === "object" && bound ? { host: bound.address, port: bound.port } : at;
  return { address, [Symbol.asyncDispose]: close };
}

/** Converts a connect error to a coded one. A missing unix socket is unavailable, like an address without a listener. */
function dialError(to: Address, error: unknown): CodedError {
  const coded = codedError(formatAddress(to), error);
  return coded.code === "not_found" ? new CodedError("unavailable", coded.message, { cause: error }) : coded;
}

/** Formats an address for messages. */
export function formatAddress(address: Address): string {
  return "unix" in address ? address.unix : `${address.host}:${address.port}`;
}
