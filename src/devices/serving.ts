import type { Duplex } from "node:stream";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { onAbort, untilAborted } from "../lib/service-group.ts";
import type { Host, HostListener } from "../seams/host.ts";
import type { ConnectionServer } from "./connection-server.ts";

/** A server on a socket of the target. */
export interface Serving {
  readonly host: Pick<Host, "listen">;
  readonly socket: string;
  readonly server: ConnectionServer;
  /** Preparations, in their order. */
  readonly prepare: readonly ((signal: AbortSignal) => Promise<unknown>)[];
  /** Describes what does not work without the server, for the log. */
  readonly without: string;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Serves until the signal aborts. A failure is logged and retried: the node works without.
 *  @param ending called after the server is closed. */
export async function serve(serving: Serving, signal: AbortSignal, ending?: () => Promise<void>): Promise<void> {
  const { host, socket, server, prepare, clock } = serving;
  let listener: HostListener | undefined;
  try {
    for (const step of prepare) await untilDone(serving, () => step(signal), signal);
    const listen = async () => void (listener = await opened(host, socket, server.take, signal));
    await untilDone(serving, listen, signal);
    await onAbort(signal);
  } finally {
    server.close();
    await ending?.();
    // If the target is unreachable, the socket stays until the next start.
    if (listener) await untilAborted(closed(listener), clock.within(closeMs)).catch(() => undefined);
  }
}

/** Opens a listener that the signal does not close: the caller awaits its end. */
async function opened(
  host: Serving["host"],
  path: string,
  take: (connection: Duplex) => void,
  signal: AbortSignal,
): Promise<HostListener | undefined> {
  const opening = new AbortController();
  const giveUp = () => opening.abort();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    return await host.listen?.({ unix: path }, take, opening.signal);
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}

async function closed(listener: HostListener): Promise<void> {
  await listener[Symbol.asyncDispose]();
}

/** Timeout of removing the socket, milliseconds. */
const closeMs = 2_000;

/** Retry delays, milliseconds: for an unreachable target, and for one that refuses. */
const retryMs = 5_000;
const refusedRetryMs = 60_000;

async function untilDone(
  { socket, without, clock, log }: Serving,
  step: () => Promise<unknown>,
  signal: AbortSignal,
): Promise<void> {
  for (let told = ""; !signal.aborted; ) {
    try {
      return void (await step());
    } catch (err) {
      if (signal.aborted) return;
      const why = messageOf(err);
      if (why !== told) log.warn({ err, socket }, `${without}; retrying`);
      told = why;
      const ms = hasCode(err, "unavailable", "deadline_exceeded") ? retryMs : refusedRetryMs;
      await clock.sleep(ms, signal).catch(() => undefined);
    }
  }
}
