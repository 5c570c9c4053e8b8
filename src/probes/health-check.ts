import type { ClientHttp2Session } from "node:http2";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { smallLimits } from "../lib/bounded-decode.ts";
import { type GrpcMethod, unaryCall } from "../lib/grpc.ts";
import { userAgent } from "../pod/http-action.ts";

const servingStatuses = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/** `Check` of `grpc.health.v1.Health`: the name of a service, and its status.
 *  @see https://github.com/grpc/grpc/blob/master/doc/health-checking.md */
const check: GrpcMethod<string, string> = {
  path: "/grpc.health.v1.Health/Check",
  requestSerialize: (service) => Buffer.from(new BinaryWriter().uint32(10).string(service).finish()),
  responseDeserialize: servingStatus,
};

/** Asks a server for the status of one of its services. @param timeoutMs sent to the server as the deadline.
 *  @throws as `unaryCall` does. */
export function checkHealth(
  session: ClientHttp2Session,
  service: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<string> {
  const options = { userAgent: userAgent("probe"), timeoutMs, limits: smallLimits, budget: undefined, signal };
  return unaryCall(session, check, service, options);
}

function servingStatus(message: BinaryReader | Buffer): string {
  const reader = message instanceof BinaryReader ? message : new BinaryReader(message);
  let status = 0;
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if (tag === 8) status = reader.int32();
    // oxlint-disable-next-line typescript/no-unsafe-enum-assignment -- the low three bits of a tag are its wire type
    else reader.skip(tag & 7);
  }
  return servingStatuses[status] ?? String(status);
}
