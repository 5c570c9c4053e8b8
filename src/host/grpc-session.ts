import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import type { DecodeLimits } from "../lib/bounded-decode.ts";
import { Socket } from "node:net";
import { chargeStream } from "../lib/target-budget.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, abortError, hasCode } from "../lib/errors.ts";
import { type GrpcMethod, unaryCall } from "../lib/grpc.ts";
import { GrpcError, grpcStatusOf } from "../lib/grpc-status.ts";
import { joinHostPort } from "../lib/http-get.ts";
import type { Address, Host } from "../seams/host.ts";
import { brokenConnection, unixDialFailure } from "./dial-text.ts";

export interface GrpcDeps {
  readonly host: Pick<Host, "dial" | "budget">;
  readonly clock: Clock;
}

const dialRetryDelayMs = 250;

/** Failure of a connection whose peer does not send a gRPC server's preface. */
export class GrpcHandshakeError extends CodedError {
  constructor(why: string, cause?: unknown) {
    super("unavailable", `error reading server preface: ${why}`, { cause });
    this.name = "HandshakeError";
  }
}

/** Opens a gRPC connection from the target, and waits for the server's settings. The caller destroys it.
 *  @param to the server, and its name for the `:authority` header. @throws GrpcHandshakeError; as `Host.dial` does; the signal's
 *  reason. */
export async function openGrpc(
  { host }: Pick<GrpcDeps, "host">,
  to: Address,
  signal: AbortSignal,
): Promise<ClientHttp2Session> {
  const connection = await host.dial(to, signal);
  const authority = "unix" in to ? "localhost" : joinHostPort(to.host, to.port);
  const session = connect(`http://${authority}`, { createConnection: () => connection });
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
    throw new GrpcHandshakeError("EOF");
  });
  try {
    await Promise.race([once(session, "remoteSettings", { signal: either }), closed]);
    return session;
  } catch (error) {
    session.destroy();
    connection.destroy();
    if (signal.aborted) throw abortError(signal);
    throw error instanceof GrpcHandshakeError ? error : new GrpcHandshakeError(brokenConnection(error), error);
  } finally {
    settled.abort();
  }
}

/** The error of a call whose connection could not be opened, in Go's words. @param path of the server's socket. */
export function connectionError(error: unknown, path: string): GrpcError {
  const isOpen = error instanceof GrpcHandshakeError;
  const what = isOpen ? error.message : `transport: Error while dialing: ${unixDialFailure(error, path)}`;
  return new GrpcError({ code: "Unavailable", message: `connection error: desc = "${what}"` }, error);
}

/** The error of a call whose deadline passed, in Go's words. */
export function deadlineError(cause: unknown): GrpcError {
  return new GrpcError({ code: "DeadlineExceeded", message: "context deadline exceeded" }, cause);
}

/** Opens a connection to a server that may not be listening yet; retries until the signal aborts. @throws as `openGrpc` does. */
export async function openGrpcWithRetry(
  { host, clock }: GrpcDeps,
  path: string,
  signal: AbortSignal,
): Promise<ClientHttp2Session> {
  for (;;) {
    try {
      return await openGrpc({ host }, { unix: path }, signal);
    } catch (error) {
      if (signal.aborted || !hasCode(error, "unavailable")) throw error;
      await clock.sleep(dialRetryDelayMs, signal);
    }
  }
}

/** A call to a server on a Unix socket of the target. */
export interface SocketCall<Request, Response> {
  readonly path: string;
  /** An open connection to use; undefined to open one for this call. */
  readonly session?: ClientHttp2Session | undefined;
  readonly method: GrpcMethod<Request, Response>;
  readonly request: Request;
  readonly userAgent: string;
  /** Timeout for connecting and receiving the response, milliseconds. */
  readonly limitMs: number;
  /** Limits of the response. */
  readonly limits: DecodeLimits;
}

/** A unary call over the given connection, or over a new one. @throws CodedError whose message is the failure in Go's format; the
 *  signal's reason. */
export async function unaryCallToSocket<Request, Response>(
  { host, clock }: GrpcDeps,
  { path, session: open, method, request, userAgent, limitMs, limits }: SocketCall<Request, Response>,
  signal: AbortSignal,
): Promise<Response> {
  const within = clock.within(limitMs, signal);
  let session = open;
  try {
    session ??= await openGrpc({ host }, { unix: path }, within);
    return await unaryCall(session, method, request, {
      userAgent,
      signal: within,
      timeoutMs: limitMs,
      budget: host.budget,
      limits,
    });
  } catch (error) {
    if (signal.aborted) throw abortError(signal);
    if (within.aborted) throw deadlineError(error);
    throw session ? error : connectionError(error, path);
  } finally {
    if (session !== open) session?.destroy();
  }
}

/** A unary call, whose outcome is recorded. @param record is called with Go's name of the status, and the duration
 *  in milliseconds. @throws as `unaryCallToSocket` does. */
export async function recordedCallToSocket<Request, Response>(
  deps: GrpcDeps,
  call: SocketCall<Request, Response>,
  record: (code: string, ms: number) => void,
  signal: AbortSignal,
): Promise<Response> {
  const began = deps.clock.monotonic();
  const recordNow = (code: string) => record(code, deps.clock.monotonic() - began);
  try {
    const response = await unaryCallToSocket(deps, call, signal);
    recordNow("OK");
    return response;
  } catch (error) {
    recordNow(signal.aborted ? "Canceled" : grpcStatusOf(error));
    throw error;
  }
}
