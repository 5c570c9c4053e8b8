import { type ClientHttp2Session, type IncomingHttpHeaders, constants } from "node:http2";
import type { BinaryReader } from "@bufbuild/protobuf/wire";
import { type DecodeLimits, decodeBounded, pluginLimits } from "./bounded-decode.ts";
import { boundedErrorText } from "./bounded-text.ts";
import { CodedError, abortError, messageOf } from "./errors.ts";
import { BoundedBuffer } from "./bounded-buffer.ts";
import { type CallFailure, GrpcError, statusName } from "./grpc-status.ts";
import type { TargetBudget } from "./target-budget.ts";

// gRPC calls over any connection, such as one from `Host.dial`: @grpc/grpc-js opens connections itself, and only from this machine.

export interface CallRequest {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly message: Uint8Array;
  readonly userAgent: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Timeout sent to the server, milliseconds. */
  readonly timeoutMs?: number;
  /** Limits of each response; default: `pluginLimits`. */
  readonly limits?: DecodeLimits;
}

/** A method of a service, as in ts-proto's service definitions. */
export interface GrpcMethod<Request, Response> {
  readonly path: string;
  readonly requestSerialize: (value: Request) => Buffer;
  readonly responseDeserialize: (value: BinaryReader | Buffer) => Response;
}

/** Calls over HTTP/2. @see https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md */
export function startCall(session: ClientHttp2Session, request: CallRequest, signal: AbortSignal) {
  const { path, message, userAgent, headers: more, timeoutMs, limits = pluginLimits } = request;
  const stream = session.request(
    {
      ...more,
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
  // A trailers-only response has its status in the headers.
  const failure = () => failureOf(headers, { ...headers, ...trailers });
  return {
    /** The server's messages as they arrive. @throws when the connection breaks, or the signal aborts, before the end. */
    messages: unframed(stream as AsyncIterable<Buffer>, limits, failure),
    /** The failure that the final status reports, after the last message; undefined for OK. */
    failure,
  };
}

export interface GrpcCallOptions extends Pick<CallRequest, "userAgent" | "headers" | "timeoutMs" | "limits"> {
  readonly signal: AbortSignal;
  /** Charged with the decoded responses. */
  readonly budget: TargetBudget | undefined;
}

/** A unary call. @throws CodedError whose message is the failure in Go's format; the signal's reason. */
export async function unaryCall<Request, Response>(
  session: ClientHttp2Session,
  method: GrpcMethod<Request, Response>,
  request: Request,
  options: GrpcCallOptions,
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
  { path, requestSerialize, responseDeserialize }: GrpcMethod<Request, Response>,
  request: Request,
  { signal, budget, ...options }: GrpcCallOptions,
): AsyncGenerator<Response> {
  const { limits = pluginLimits } = options;
  if (session.destroyed || session.closed) throw new UnprocessedError("the connection is closed");
  const call = startCall(session, { ...options, path, message: requestSerialize(request) }, signal);
  try {
    for await (const message of call.messages)
      yield decodeBounded((reader) => decode(responseDeserialize, reader), message, limits, budget);
  } catch (error) {
    throw signal.aborted ? abortError(signal) : callError(error, session);
  }
  const failure = call.failure();
  if (failure) throw new GrpcError(failure);
}

/** Failure of a call that the server has not processed: it is safe to repeat. */
export class UnprocessedError extends GrpcError {
  constructor(message: string, cause?: unknown) {
    super({ code: "Unavailable", message }, cause);
    this.name = "UnprocessedError";
  }
}

/** @throws CodedError */
function decode<Response>(deserialize: (reader: BinaryReader) => Response, reader: BinaryReader): Response {
  try {
    return deserialize(reader);
  } catch (error) {
    if (error instanceof CodedError) throw error;
    const message = `grpc: failed to unmarshal the received message: ${messageOf(error)}`;
    throw new GrpcError({ code: "Internal", message }, error);
  }
}

/** Statuses for HTTP/2's errors of one stream. @see https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors */
const resetStatuses: Readonly<Record<string, string>> = {
  ENHANCE_YOUR_CALM: "ResourceExhausted",
  INADEQUATE_SECURITY: "PermissionDenied",
};

/** The error of a call whose messages could not be read to their end. */
function callError(error: unknown, session: ClientHttp2Session): CodedError {
  if (error instanceof CodedError) return error;
  const reset = /^Stream closed with error code NGHTTP2_(\w+)$/.exec(messageOf(error))?.[1];
  if (reset === undefined || session.destroyed)
    return new GrpcError({ code: "Unavailable", message: messageOf(error) }, error);
  const message = `stream terminated by RST_STREAM with error code: ${reset}`;
  if (reset === "REFUSED_STREAM") return new UnprocessedError(message, error);
  return new GrpcError({ code: resetStatuses[reset] ?? "Internal", message }, error);
}

function miscounted(why: string): GrpcError {
  return new GrpcError({ code: "Internal", message: `cardinality violation: ${why}` });
}

function failureOf(headers: IncomingHttpHeaders, all: IncomingHttpHeaders): CallFailure | undefined {
  const status = all["grpc-status"];
  if (status === "0") return undefined;
  if (status === undefined) return withoutStatus(headers);
  const message = boundedErrorText(decoded(String(all["grpc-message"] ?? "")));
  return { code: statusName(Number(status)), message };
}

/** Failure of a server that speaks HTTP/2 but not gRPC, or that closed the connection before sending a status. */
function withoutStatus(headers: IncomingHttpHeaders): CallFailure {
  const http = headers[constants.HTTP2_HEADER_STATUS];
  if (http === undefined || Number(http) === 200)
    return { code: "Unavailable", message: "error reading from server: EOF" };
  const message = `unexpected HTTP status code received from server: ${Number(http)}`;
  return { code: Number(http) === 404 ? "Unimplemented" : "Unknown", message };
}

/** gRPC's message prefix: the compressed flag (0), then the length. */
const prefixBytes = 5;

function frame(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Splits a stream of frames into messages. Each is assembled once, however small the chunks are.
 *  @param failure of the call, if the server has sent one by the end of the stream.
 *  @throws CodedError resource_exhausted for an oversized message, before its bytes are read. */
async function* unframed(
  stream: AsyncIterable<Buffer>,
  { maxMessageBytes }: DecodeLimits,
  failure: () => CallFailure | undefined,
): AsyncGenerator<Buffer> {
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
  if (!inPrefix || kept.length > 0) throw new GrpcError(failure() ?? { code: "Internal", message: "unexpected EOF" });
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
