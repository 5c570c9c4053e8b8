import type { Duplex } from "node:stream";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { splice } from "./splice.ts";

/** Gives a connection to a port inside the pod. @throws why there is none. */
export type ConnectPort = (port: number, signal: AbortSignal) => Promise<Duplex>;

/** One forwarded connection, as the protocol side has it. */
export interface Forwarded {
  readonly port: number;
  /** The client's end of the connection. */
  readonly data: Duplex;
  /** Aborts when the client is gone. */
  readonly gone: AbortSignal;
  /** Called when the pod's end has said all it has to say. */
  readonly onRemoteEnd?: () => void;
}

/** Carries one connection between a client and a port of the pod, until both have ended or either breaks off; `data` is
 *  destroyed then. Never throws.
 *  @returns what the client is to be told: why there was no connection, or none that ever said anything. A connection that
 *  breaks off later is only cut, for clients give up all their forwarded connections when they are told of an error. */
export async function forward(
  { port, data, gone, onRemoteEnd }: Forwarded,
  connect: ConnectPort,
  log: Logger,
): Promise<string | undefined> {
  const cut = new AbortController();
  data.once("close", () => cut.abort(new CodedError("cancelled", "the client closed the connection")));
  const signal = AbortSignal.any([gone, cut.signal]);
  let spoken = false;
  try {
    const remote = await connect(port, signal);
    remote.once("data", () => {
      spoken = true;
    });
    if (onRemoteEnd) remote.once("end", onRemoteEnd);
    await splice(data, remote, signal);
    return undefined;
  } catch (error) {
    log.debug({ port, err: error }, "forwarded connection broken off");
    return spoken || signal.aborted ? undefined : `error forwarding port ${port}: ${messageOf(error)}`;
  } finally {
    data.destroy();
  }
}
