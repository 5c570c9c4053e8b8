import { type ClientHttp2Session, type IncomingHttpHeaders, constants } from "node:http2";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { userAgent } from "../pod/http-action.ts";

/** How a health check ended: the server's word for the service, or the call's failure. */
export type HealthAnswer =
  | { readonly is: "answered"; readonly status: string }
  | { readonly is: "failed"; readonly code: string; readonly message: string };

const servingStatuses = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/** gRPC's codes by number, as Go names them. @see https://grpc.io/docs/guides/status-codes/ */
const codeNames = [
  "OK",
  "Canceled",
  "Unknown",
  "InvalidArgument",
  "DeadlineExceeded",
  "NotFound",
  "AlreadyExists",
  "PermissionDenied",
  "ResourceExhausted",
  "FailedPrecondition",
  "Aborted",
  "OutOfRange",
  "Unimplemented",
  "Internal",
  "Unavailable",
  "DataLoss",
  "Unauthenticated",
];

/** One `grpc.health.v1.Health/Check`. @param timeoutMs told to the server.
 *  @throws when the connection breaks, or `signal` aborts, before an answer.
 *  @see https://github.com/grpc/grpc/blob/master/doc/health-checking.md
 *  @see https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md */
export async function checkHealth(
  session: ClientHttp2Session,
  service: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<HealthAnswer> {
  const stream = session.request(
    {
      ":method": "POST",
      ":path": "/grpc.health.v1.Health/Check",
      te: "trailers",
      "content-type": "application/grpc",
      "user-agent": userAgent("probe"),
      "grpc-timeout": `${Math.round(timeoutMs)}m`,
    },
    { signal },
  );
  let headers: IncomingHttpHeaders = {};
  let trailers: IncomingHttpHeaders = {};
  stream.on("response", (received) => (headers = received));
  stream.on("trailers", (received) => (trailers = received));
  stream.end(frame(new BinaryWriter().uint32(10).string(service).finish()));
  const chunks: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
  // A call that fails at once has its status in the headers.
  const status = trailers["grpc-status"] ?? headers["grpc-status"];
  const message = trailers["grpc-message"] ?? headers["grpc-message"];
  if (status === "0") return { is: "answered", status: servingStatus(Buffer.concat(chunks)) };
  if (status === undefined) return withoutStatus(headers);
  return {
    is: "failed",
    code: codeNames[Number(status)] ?? `Code(${String(status)})`,
    message: decode(String(message ?? "")),
  };
}

/** A server that speaks HTTP/2 but not gRPC. */
function withoutStatus(headers: IncomingHttpHeaders): HealthAnswer {
  const http = Number(headers[constants.HTTP2_HEADER_STATUS]);
  const message = `unexpected HTTP status code received from server: ${http}`;
  return { is: "failed", code: http === 404 ? "Unimplemented" : "Unknown", message };
}

/** Not compressed, then the length: gRPC's prefix of a message. */
function frame(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

function servingStatus(framed: Buffer): string {
  const reader = new BinaryReader(framed.subarray(5));
  let status = 0;
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if (tag === 8) status = reader.int32();
    // oxlint-disable-next-line typescript/no-unsafe-enum-assignment -- the low three bits of a tag are its wire type
    else reader.skip(tag & 7);
  }
  return servingStatuses[status] ?? String(status);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
