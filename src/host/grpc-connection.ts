import type { ClientHttp2Session } from "node:http2";
import { CodedError } from "../lib/errors.ts";
import { createSharedPromise } from "../lib/single-flight.ts";
import { type GrpcDeps, connectionError, openGrpc } from "./grpc-session.ts";

/** Timeout of opening a connection, milliseconds: gRPC's default. */
const connectTimeoutMs = 20_000;
/** Minimum delay between a failed attempt and the next one, milliseconds. */
const reconnectDelayMs = 100;

/** A connection to a gRPC server on a Unix socket of the target. It is opened on first use, and again after a loss. @param path of the
 *  socket. */
export function createGrpcConnection({ host, clock }: GrpcDeps, path: string) {
  const shared = createSharedPromise<ClientHttp2Session>(clock, connectTimeoutMs);
  const closing = new AbortController();
  let session: ClientHttp2Session | undefined;
  let failedAt = Number.NEGATIVE_INFINITY;
  const open = async (timeout: AbortSignal): Promise<ClientHttp2Session> => {
    const signal = AbortSignal.any([timeout, closing.signal]);
    try {
      const delayMs = failedAt + reconnectDelayMs - clock.monotonic();
      if (delayMs > 0) await clock.sleep(delayMs, signal);
      return (session = await openGrpc({ host }, { unix: path }, signal));
    } catch (error) {
      failedAt = clock.monotonic();
      throw connectionError(error, path);
    }
  };
  return {
    /** Returns the open session, or opens one. Concurrent callers share one attempt.
     *  @throws GrpcError Unavailable if the server cannot be reached; the signal's reason. */
    session(signal: AbortSignal): ClientHttp2Session | Promise<ClientHttp2Session> {
      if (session && !session.closed && !session.destroyed) return session;
      return shared(open, signal);
    },
    /** Ends all calls. */
    close(): void {
      closing.abort(new CodedError("cancelled", "the connection is closed"));
      session?.destroy();
    },
  };
}
