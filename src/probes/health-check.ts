import type { ClientHttp2Session } from "node:http2";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { smallLimits } from "../lib/bounded-decode.ts";
import { CodedError } from "../lib/errors.ts";
import { type CallFailure, startCall } from "../lib/grpc.ts";
import { userAgent } from "../pod/http-action.ts";

/** Result of a health check: the service's status, or the call's failure. */
export type HealthAnswer = { readonly is: "answered"; readonly status: string } | CallFailure;

const servingStatuses = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/** One `grpc.health.v1.Health/Check` call. @param timeoutMs sent to the server as the deadline.
 *  @throws if the connection breaks, or `signal` aborts, before the response.
 *  @see https://github.com/grpc/grpc/blob/master/doc/health-checking.md */
export async function checkHealth(
  session: ClientHttp2Session,
  service: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<HealthAnswer> {
  const call = startCall(
    session,
    {
      path: "/grpc.health.v1.Health/Check",
      message: new BinaryWriter().uint32(10).string(service).finish(),
      userAgent: userAgent("probe"),
      timeoutMs,
      limits: smallLimits,
    },
    signal,
  );
  let answer: Buffer | undefined;
  for await (const message of call.messages) {
    if (answer) throw new CodedError("internal", "the server sent more than one answer");
    answer = message;
  }
  const end = call.end();
  return end.is === "failed" ? end : { is: "answered", status: servingStatus(answer ?? Buffer.alloc(0)) };
}

function servingStatus(message: Buffer): string {
  const reader = new BinaryReader(message);
  let status = 0;
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if (tag === 8) status = reader.int32();
    // oxlint-disable-next-line typescript/no-unsafe-enum-assignment -- the low three bits of a tag are its wire type
    else reader.skip(tag & 7);
  }
  return servingStatuses[status] ?? String(status);
}
