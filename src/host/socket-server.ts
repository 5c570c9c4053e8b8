import type { Duplex } from "node:stream";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { onAbort, untilAborted, forwardedAbort } from "../lib/runnables.ts";
import type { Host, HostListener } from "../seams/host.ts";
import type { ConnectionServer } from "./connection-server.ts";
import { retryUntilDone } from "../lib/retry.ts";

export interface SocketServer extends ClockAndLog {
  readonly host: Pick<Host, "listen">;
  readonly socket: string;
  readonly server: ConnectionServer;
  /** Preparations, in their order. */
  readonly prepare: readonly ((signal: AbortSignal) => Promise<unknown>)[];
  /** Describes the feature that is unavailable without the server, for the log. */
  readonly failureMessage: string;
}

/** Serves until the signal aborts. A failure is logged and retried; the node works without the server.
 *  @param ending called after the server is closed. */
export async function serveSocket(
  serving: SocketServer,
  signal: AbortSignal,
  ending?: () => Promise<void>,
): Promise<void> {
  const { host, socket, server, prepare, failureMessage, clock, log } = serving;
  const delayMs = (error: unknown) =>
    hasCode(error, "unavailable", "deadline_exceeded") ? retryDelayMs : refusedRetryDelayMs;
  const retries = { message: `${failureMessage}; retrying`, fields: { socket }, delayMs, clock, log };
  let listener: HostListener | undefined;
  try {
    for (const step of prepare) await retryUntilDone(retries, () => step(signal), signal);
    const listen = async () => void (listener = await openListener(host, socket, server.take, signal));
    await retryUntilDone(retries, listen, signal);
    await onAbort(signal);
  } finally {
    server.close();
    await ending?.();
    // If the target is unreachable, the socket stays until the next start.
    if (listener) await untilAborted(closeListener(listener), clock.within(closeTimeoutMs)).catch(() => undefined);
  }
}

/** Opens a listener. The signal only ends the attempt; an open listener is closed by the caller. */
async function openListener(
  host: SocketServer["host"],
  path: string,
  onConnection: (connection: Duplex) => void,
  signal: AbortSignal,
): Promise<HostListener | undefined> {
  using opening = forwardedAbort(signal);
  return await host.listen?.({ unix: path }, onConnection, opening.signal);
}

async function closeListener(listener: HostListener): Promise<void> {
  await listener[Symbol.asyncDispose]();
}

const closeTimeoutMs = 2_000;

/** Retry delays, milliseconds: for an unreachable target, and for a target that refuses the socket. */
const retryDelayMs = 5_000;
const refusedRetryDelayMs = 60_000;
