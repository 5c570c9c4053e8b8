import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import type { DecodeLimits } from "../lib/bounded-decode.ts";
import { Socket } from "node:net";
import { chargeStream } from "../lib/target-budget.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, abortError, hasCode, messageOf } from "../lib/errors.ts";
import { GrpcError, type GrpcMethod, unaryCall } from "../lib/grpc.ts";
import type { Host } from "../seams/host.ts";
import { unixDialFailure } from "./dial-text.ts";

export interface GrpcDeps {
  readonly host: Pick<Host, "dial" | "budget">;
  readonly clock: Clock;
}

const dialRetryDelayMs = 250;

/** Failure of a connection whose peer does not send a gRPC server's preface. */
class HandshakeError extends CodedError {
  constructor(why: string, cause?: unknown) {
    super("unavailable", `error reading server preface: ${why}`, { cause });
    this.name = "HandshakeError";
  }
}

/** Opens a gRPC connection to a Unix socket of the target, and waits for the server's settings. The caller destroys it.
 *  @param path of the socket. @throws as `Host.dial` does; the signal's reason. */
export async function openGrpc({ host }: Pick<GrpcDeps, "host">, path: string, signal: AbortSignal) {
  const connection = await host.dial({ unix: path }, signal);
  const session = connect("http://localhost", { createConnection: () => connection });
  // HTTP/2 reads a local socket natively, without passing data through JavaScript.
  if (!(connection instanceof Socket)) chargeStream(connection, host.budget);
  // A session error fails its calls, which report it.
  session.on("error", () => {});
  connection.on("error", () => {});
  // A server that closed its side sends nothing more, although this side could still write.
  connection.on("end", () => session.destroy());
  const settled = new AbortController();
  const either = AbortSignal.any([signal, settled.signal]);
  const closed = once(session, "close", { signal: either }).then(() => {
    throw new HandshakeError("EOF");
  });
  try {
    await Promise.race([once(session, "remoteSettings", { signal: either }), closed]);
    return session;
  } catch (error) {
    session.destroy();
    connection.destroy();
    if (signal.aborted || error instanceof HandshakeError) throw error;
    throw new HandshakeError(messageOf(error), error);
  } finally {
    settled.abort();
  }
}

/** Opens a connection to a server that may not be listening yet; retries until the signal aborts. @throws as `openGrpc` does. */
export async function openGrpcWithRetry(
  { host, clock }: GrpcDeps,
  path: string,
  signal: AbortSignal,
): Promise<ClientHttp2Session> {
  for (;;) {
    try {
      return await openGrpc({ host }, path, signal);
    } catch (error) {
      if (signal.aborted || !hasCode(error, "unavailable")) throw error;
      await clock.sleep(dialRetryDelayMs, signal);
    }
  }
}

/** A call to a server on a Unix socket of the target. */
export interface SocketCall<Request, Response> {
  readonly path: string;
  readonly method: GrpcMethod<Request, Response>;
  readonly request: Request;
  readonly userAgent: string;
  /** Timeout for connecting and the response, milliseconds. */
  readonly limitMs: number;
  /** Limits of the response. */
  readonly limits: DecodeLimits;
}

/** A unary call over its own connection. @throws CodedError whose message is the failure in Go's format; the signal's reason. */
export async function unaryCallToSocket<Request, Response>(
  { host, clock }: GrpcDeps,
  { path, method, request, userAgent, limitMs, limits }: SocketCall<Request, Response>,
  signal: AbortSignal,
): Promise<Response> {
  const within = clock.within(limitMs, signal);
  let session: ClientHttp2Session | undefined;
  try {
    session = await openGrpc({ host }, path, within);
    return await unaryCall(session, method, request, {
      userAgent,
      signal: within,
      timeoutMs: limitMs,
      budget: host.budget,
      limits,
    });
  } catch (error) {
    if (signal.aborted) throw abortError(signal);
    if (within.aborted) throw new GrpcError({ code: "DeadlineExceeded", message: "context deadline exceeded" }, error);
    if (session) throw error;
    const what =
      error instanceof HandshakeError
        ? error.message
        : `transport: Error while dialing: ${unixDialFailure(error, path)}`;
    const why = `connection error: desc = "${what}"`;
    throw new GrpcError({ code: "Unavailable", message: why }, error);
  } finally {
    session?.destroy();
  }
}
