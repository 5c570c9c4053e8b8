import type { ClientHttp2Session } from "node:http2";
import { messageOf } from "../lib/errors.ts";
import { GrpcError } from "../lib/grpc-status.ts";
import type { Host } from "../seams/host.ts";
import { dialFailure } from "../host/dial-text.ts";
import { GrpcHandshakeError, openGrpc } from "../host/grpc-session.ts";
import { type ProbeOutcome, goDurationOfSeconds } from "./outcome.ts";
import { joinHostPort } from "../lib/http-get.ts";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { smallLimits } from "../lib/bounded-decode.ts";
import { type GrpcMethod, unaryCall } from "../lib/grpc.ts";
import { userAgent } from "../pod/http-action.ts";

export interface GrpcProbe {
  readonly host: string;
  readonly port: number;
  readonly service: string;
  readonly timeoutSeconds: number;
  /** Aborts after `timeoutSeconds`. */
  readonly signal: AbortSignal;
}

/** Calls the container's gRPC health service, without TLS; SERVING is a success.
 *  @see
 *  https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#define-a-grpc-liveness-probe */
export async function probeGrpc(dialer: Pick<Host, "dial">, probe: GrpcProbe): Promise<ProbeOutcome> {
  const { host, port, timeoutSeconds, signal } = probe;
  let session: ClientHttp2Session | undefined;
  try {
    session = await openGrpc({ host: dialer }, { host, port }, signal);
    return outcomeOf(await checkHealth(session, probe.service, timeoutSeconds * 1000, signal));
  } catch (error) {
    return failure(session ? callFailure(error, probe) : connectFailure(error, probe));
  } finally {
    session?.destroy();
  }
}

function outcomeOf(status: string): ProbeOutcome {
  if (status === "SERVING") return { kind: "success", output: "service healthy" };
  return failure(`service unhealthy (responded with "${status}")`);
}

function connectFailure(error: unknown, { host, port, timeoutSeconds, signal }: GrpcProbe): string {
  const address = `"${joinHostPort(host, port)}"`;
  if (signal.aborted)
    return `timeout: failed to connect service ${address} within ${goDurationOfSeconds(timeoutSeconds)}: context deadline exceeded`;
  const why =
    error instanceof GrpcHandshakeError
      ? error.message
      : `transport: Error while dialing: ${dialFailure(error, host, port)}`;
  return `error: failed to connect service at ${address}: connection error: desc = "${why}"`;
}

function callFailure(error: unknown, { timeoutSeconds, signal }: GrpcProbe): string {
  const status = error instanceof GrpcError ? error.status : undefined;
  if (signal.aborted || status === "DeadlineExceeded")
    return `timeout: health rpc did not complete within ${goDurationOfSeconds(timeoutSeconds)}`;
  if (error instanceof GrpcError && status === "Unimplemented")
    return `error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ${error.description}`;
  return `error: health rpc probe failed: ${messageOf(error)}`;
}

function failure(output: string): ProbeOutcome {
  return { kind: "failure", output };
}

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
function checkHealth(
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
