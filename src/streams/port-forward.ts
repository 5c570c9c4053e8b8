import type { Duplex } from "node:stream";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { splice } from "./splice.ts";

/** Connects to a port inside the pod. @throws the reason of a failure. */
export type ConnectPort = (port: number, signal: AbortSignal) => Promise<Duplex>;

/** One forwarded connection, on the protocol side. */
export interface ForwardedConnection {
  readonly port: number;
  /** The client's end of the connection. */
  readonly data: Duplex;
  /** Aborts when the client disconnects. */
  readonly gone: AbortSignal;
  /** Called when the pod's end has sent all its data. */
  readonly onRemoteEnd?: () => void;
}

/** Forwards one connection between a client and a port of the pod, until both have ended or either breaks off; `data` is then destroyed.
 *  Never throws. @returns the client's error message: the connection failed, or broke off before it sent anything. A connection that
 *  breaks off later is only closed, because clients abandon all their forwarded connections on an error. */
export async function forwardConnection(
  { port, data, gone, onRemoteEnd }: ForwardedConnection,
  connect: ConnectPort,
  log: Logger,
): Promise<string | undefined> {
  const closed = new AbortController();
  data.once("close", () => closed.abort(new CodedError("cancelled", "the client closed the connection")));
  const signal = AbortSignal.any([gone, closed.signal]);
  let hasSentData = false;
  try {
    const remote = await connect(port, signal);
    remote.once("data", () => {
      hasSentData = true;
    });
    if (onRemoteEnd) remote.once("end", onRemoteEnd);
    await splice(data, remote, signal);
    return undefined;
  } catch (error) {
    log.debug({ port, err: error }, "forwarded connection was interrupted");
    return hasSentData || signal.aborted ? undefined : `error forwarding port ${port}: ${messageOf(error)}`;
  } finally {
    data.destroy();
  }
}
