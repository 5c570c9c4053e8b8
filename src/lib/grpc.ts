import { type ClientHttp2Session, type IncomingHttpHeaders, constants } from "node:http2";
import type { BinaryReader } from "@bufbuild/protobuf/wire";
import { type DecodeLimits, decodeBounded, pluginLimits } from "./bounded-decode.ts";
import { boundedErrorText } from "./bounded-text.ts";
import { CodedError, type ErrorCode, abortError, codeOf, hasCode, messageOf } from "./errors.ts";
import { BoundedBuffer } from "./bounded-buffer.ts";
import type { TargetBudget } from "./target-budget.ts";

// gRPC calls over an existing connection: the usual library dials itself, and only from this machine.

/** Status of a finished call. @see https://grpc.io/docs/guides/status-codes/ */
export type CallEnd = { readonly is: "ok" } | CallFailure;

export interface CallFailure {
  readonly is: "failed";
  /** gRPC's code, as Go names it. */
  readonly code: string;
  readonly message: string;
}

export interface CallRequest {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly message: Uint8Array;
  readonly userAgent: string;
  /** Timeout sent to the server, milliseconds. */
  readonly timeoutMs?: number;
  /** Limits of each response; default: `pluginLimits`. */
  readonly limits?: DecodeLimits;
}

/** A call in progress. */
export interface Call {
  /** The server's messages as they arrive. @throws when the connection breaks, or the signal aborts, before the end. */
  readonly messages: AsyncIterable<Buffer>;
  /** The final status, after the last message. */
  end(): CallEnd;
}

/** A method of a service, as in ts-proto's service definitions. */
export interface GrpcMethod<Request, Response> {
  readonly path: string;
  readonly requestSerialize: (value: Request) => Buffer;
  readonly responseDeserialize: (value: BinaryReader | Buffer) => Response;
}

/** Go's names of the gRPC status codes with our error codes, indexed by number. */
const codes: readonly (readonly [name: string, code: ErrorCode])[] = [
  ["OK", "unknown"],
  ["Canceled", "cancelled"],
  ["Unknown", "unknown"],
  ["InvalidArgument", "invalid_argument"],
  ["DeadlineExceeded", "deadline_exceeded"],
  ["NotFound", "not_found"],
  ["AlreadyExists", "already_exists"],
  ["PermissionDenied", "permission_denied"],
  ["ResourceExhausted", "resource_exhausted"],
  ["FailedPrecondition", "failed_precondition"],
  ["Aborted", "conflict"],
  ["OutOfRange", "invalid_argument"],
  ["Unimplemented", "unimplemented"],
  ["Internal", "internal"],
  ["Unavailable", "unavailable"],
  ["DataLoss", "unknown"],
  ["Unauthenticated", "unauthenticated"],
];

/** Failure of a call, in Go's format. */
export class GrpcError extends CodedError {
  /** gRPC's code, as Go names it. */
  readonly status: string;
  constructor({ code, message }: Pick<CallFailure, "code" | "message">, cause?: unknown) {
    super(codeNamed(code), `rpc error: code = ${code} desc = ${message}`, { cause });
    this.name = "GrpcError";
    this.status = code;
  }
}

/** Status of a failed call as Go names it; `unknown-non-grpc` for other errors. */
export function grpcStatusOf(error: unknown): string {
  return error instanceof GrpcError ? error.status : "unknown-non-grpc";
}

/** Calls over HTTP/2. @see https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md */
export function startCall(session: ClientHttp2Session, request: CallRequest, signal: AbortSignal): Call {
  const { path, message, userAgent, timeoutMs, limits = pluginLimits } = request;
  const stream = session.request(
    {
      ":method": "POST",
      ":path": path,
      te: "trailers",
      "content-type": "application/grpc",
      "user-agent": userAgent,
      ...(timeoutMs !== undefined && { "grpc-timeout": `${Math.round(timeoutMs)}m` }),
    },
    { signal },
  );
  // The reader of the messages gets the error; after the last message there is no reader anymore.
  stream.on("error", () => {});
  let headers: IncomingHttpHeaders = {};
  let trailers: IncomingHttpHeaders = {};
  stream.on("response", (received) => (headers = received));
  stream.on("trailers", (received) => (trailers = received));
  stream.end(frame(message));
  return {
    messages: unframed(stream as AsyncIterable<Buffer>, limits),
    // A trailers-only response has its status in the headers.
    end: () => endOf(headers, { ...headers, ...trailers }),
  };
}

export interface CallOptions extends Pick<CallRequest, "userAgent" | "timeoutMs" | "limits"> {
  readonly signal: AbortSignal;
  /** Charged with the decoded responses. */
  readonly budget: TargetBudget | undefined;
}

/** A unary call. @throws CodedError whose message is the failure in Go's format; the signal's reason. */
export async function unaryCall<Request, Response>(
  session: ClientHttp2Session,
  method: GrpcMethod<Request, Response>,
  request: Request,
  options: CallOptions,
): Promise<Response> {
  let answer: Response | undefined;
  for await (const message of serverStreamingCall(session, method, request, options)) {
    if (answer !== undefined)
      throw miscounted("expected <EOF> for non server-streaming RPCs, but received another message");
    answer = message;
  }
  if (answer === undefined) throw miscounted("received no response message from non-server-streaming RPC");
  return answer;
}

/** A server-streaming call. @throws as `unaryCall` does. */
export async function* serverStreamingCall<Request, Response>(
  session: ClientHttp2Session,
  method: GrpcMethod<Request, Response>,
  request: Request,
  { userAgent, signal, timeoutMs, budget, limits = pluginLimits }: CallOptions,
): AsyncGenerator<Response> {
  if (session.destroyed || session.closed) throw broken("the connection is closed");
  const { path, requestSerialize, responseDeserialize } = method;
  const message = requestSerialize(request);
  const limit = timeoutMs === undefined ? {} : { timeoutMs };
  const call = startCall(session, { path, message, userAgent, limits, ...limit }, signal);
  try {
    for await (const message of call.messages) yield decodeBounded(responseDeserialize, message, limits, budget);
  } catch (error) {
    if (signal.aborted) throw abortError(signal);
    if (error instanceof GrpcError) throw error;
    throw hasCode(error, "resource_exhausted") ? error : broken(messageOf(error), error);
  }
  const end = call.end();
  if (end.is === "failed") throw new GrpcError(end);
}

function miscounted(why: string): GrpcError {
  return new GrpcError({ code: "Internal", message: `cardinality violation: ${why}` });
}

function broken(why: string, cause?: unknown): GrpcError {
  return new GrpcError({ code: "Unavailable", message: why }, cause);
}

function codeNamed(name: string): ErrorCode {
  return codes.find(([known]) => known === name)?.[1] ?? "unknown";
}

/** The gRPC code of any coded error, as Go names it. */
export function goCode(error: unknown): string {
  const code = codeOf(error);
  return codes.slice(1).find(([, known]) => known === code)?.[0] ?? "Unknown";
}

function endOf(headers: IncomingHttpHeaders, all: IncomingHttpHeaders): CallEnd {
  const status = all["grpc-status"];
  if (status === "0") return { is: "ok" };
  if (status === undefined) return withoutStatus(headers);
  const code = codes[Number(status)]?.[0] ?? `Code(${String(status)})`;
  return { is: "failed", code, message: boundedErrorText(decoded(String(all["grpc-message"] ?? ""))) };
}

/** Failure of a server that speaks HTTP/2 but not gRPC, or that closed the connection before sending a status. */
function withoutStatus(headers: IncomingHttpHeaders): CallFailure {
  const http = headers[constants.HTTP2_HEADER_STATUS];
  if (http === undefined || Number(http) === 200)
    return { is: "failed", code: "Unavailable", message: "error reading from server: EOF" };
  const message = `unexpected HTTP status code received from server: ${Number(http)}`;
  return { is: "failed", code: Number(http) === 404 ? "Unimplemented" : "Unknown", message };
}

/** gRPC's message prefix: the compressed flag (0), then the length. */
const prefixBytes = 5;

function frame(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Splits a stream of frames into messages. Each is assembled once, however small the chunks are.
 *  @throws CodedError resource_exhausted for an oversized message, before its bytes are read. */
async function* unframed(stream: AsyncIterable<Buffer>, { maxMessageBytes }: DecodeLimits): AsyncGenerator<Buffer> {
  const kept = new BoundedBuffer(maxMessageBytes);
  let wanted = prefixBytes;
  let inPrefix = true;
  for await (const chunk of stream) {
    for (let rest = chunk; ; inPrefix = !inPrefix) {
      const part = rest.subarray(0, wanted - kept.length);
      rest = rest.subarray(part.length);
      kept.add(part);
      if (kept.length < wanted) break;
      const whole = kept.take();
      wanted = inPrefix ? messageLength(whole, maxMessageBytes) : prefixBytes;
      if (!inPrefix) yield whole;
    }
  }
  if (!inPrefix || kept.length > 0) throw new GrpcError({ code: "Internal", message: "unexpected EOF" });
}

function messageLength(prefix: Buffer, maxMessageBytes: number): number {
  if (prefix[0] !== 0)
    throw new GrpcError({ code: "Internal", message: "compressed flag set with identity or empty encoding" });
  const bytes = prefix.readUInt32BE(1);
  if (bytes <= maxMessageBytes) return bytes;
  throw new CodedError("resource_exhausted", `a message of ${bytes} bytes is longer than ${maxMessageBytes} bytes`);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
