import { createGrpcConnection } from "../../src/host/grpc-connection.ts";
import { deadlineError } from "../../src/host/grpc-session.ts";
import { runtimeLimits } from "../../src/lib/bounded-decode.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, abortError, messageOf, throwIfAborted } from "../../src/lib/errors.ts";
import { type GrpcMethod, UnprocessedError, serverStreamingCall, unaryCall } from "../../src/lib/grpc.ts";
import { GrpcError } from "../../src/lib/grpc-status.ts";
import type { Host } from "../../src/seams/host.ts";
import { RuntimeError, runtimeReasons } from "../../src/seams/runtime.ts";

/** Timeout of a unary call, milliseconds; `none`: only the signal ends the call. */
export type CallTimeout = number | "none";

/** A gRPC connection to a unix socket of the target. It connects on the first call and reconnects automatically. While the socket does not
 *  respond, calls fail with `unavailable` at once. */
export interface GrpcChannel {
  /** @param limit deadline of the call; the channel's own when omitted. @throws CodedError with the server's message. */
  call<Request, Response>(
    method: GrpcMethod<Request, Response>,
    request: Request,
    signal: AbortSignal,
    limit?: CallTimeout,
  ): Promise<Response>;
  /** Starts a server stream. It ends when the signal aborts; throws when the stream breaks or the server ends it. */
  stream<Request, Response>(
    method: GrpcMethod<Request, Response>,
    request: Request,
    signal: AbortSignal,
    headers?: Readonly<Record<string, string>>,
  ): AsyncGenerator<Response>;
  close(): void;
}

export interface ChannelOptions {
  readonly host: Pick<Host, "dial" | "budget">;
  /** Absolute path of the socket on the target. */
  readonly path: string;
  /** Deadline of an ordinary call, milliseconds. */
  readonly requestTimeoutMs: number;
  /** Headers for the next unary call. */
  readonly callHeaders?: () => Readonly<Record<string, string>>;
  readonly clock: Clock;
}

/** The server ended a stream without an error. */
export class StreamEndedError extends CodedError {
  constructor(path: string) {
    super("unavailable", `the stream ${path} ended`);
    this.name = "StreamEndedError";
  }
}

const userAgent = "graftlet-cri";

/** Time after which a message stream yields to the event loop, milliseconds: messages that arrive together would otherwise be
 *  decoded without a pause. */
const maxTurnMs = 20;

/** Creates a channel. It sends no keepalive pings: containerd refuses them, and a unix socket reports at once that its peer is
 *  gone. */
export function createGrpcChannel(options: ChannelOptions): GrpcChannel {
  const { host, path, requestTimeoutMs, callHeaders, clock } = options;
  const connection = createGrpcConnection({ host, clock }, path);
  const common = { userAgent, budget: host.budget, limits: runtimeLimits };
  return {
    async call(method, request, signal, limit = requestTimeoutMs) {
      throwIfAborted(signal);
      const within = limit === "none" ? signal : clock.within(limit, signal);
      const timeout = limit === "none" ? {} : { timeoutMs: limit };
      const headers = callHeaders && { headers: callHeaders() };
      const attempt = async () =>
        unaryCall(await connection.session(within), method, request, {
          ...common,
          ...timeout,
          ...headers,
          signal: within,
        });
      try {
        return await attempt().catch((error: unknown) => {
          if (error instanceof UnprocessedError) return attempt();
          throw error;
        });
      } catch (error) {
        throw codedCallError(within.aborted ? deadlineError(error) : error, signal);
      }
    },
    async *stream<Request, Response>(
      method: GrpcMethod<Request, Response>,
      request: Request,
      signal: AbortSignal,
      headers: Readonly<Record<string, string>> = {},
    ): AsyncGenerator<Response> {
      if (signal.aborted) return;
      try {
        const messages = serverStreamingCall(await connection.session(signal), method, request, {
          ...common,
          headers,
          signal,
        });
        let turnBegan = clock.monotonic();
        for await (const message of messages) {
          yield message;
          if (clock.monotonic() - turnBegan < maxTurnMs) continue;
          await clock.sleep(0);
          turnBegan = clock.monotonic();
        }
        if (!signal.aborted) throw new StreamEndedError(method.path);
      } catch (error) {
        if (!signal.aborted) throw codedCallError(error, signal);
      }
    },
    close: () => connection.close(),
  };
}

/** Creates the error of a failed call. The message is only the server's own, since users read it in events; the cause is the gRPC
 *  error. Returns a RuntimeError if the message begins with a reason defined by CRI, and the signal's reason if the call was
 *  aborted. */
function codedCallError(error: unknown, signal: AbortSignal): CodedError {
  if (signal.aborted) return abortError(signal);
  if (error instanceof GrpcError) {
    const { code, description } = error;
    const reason = runtimeReasons.find((word) => description.startsWith(word));
    const options = { cause: error };
    return reason ? new RuntimeError(code, reason, description, options) : new CodedError(code, description, options);
  }
  return error instanceof CodedError ? error : new CodedError("unknown", messageOf(error), { cause: error });
}
