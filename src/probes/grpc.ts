import { once } from "node:events";
import { connect } from "node:http2";
import type { Duplex } from "node:stream";
import { messageOf } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { brokenConnection, dialFailure } from "../host/dial-text.ts";
import { type HealthAnswer, checkHealth } from "./health-check.ts";
import { type ProbeOutcome, goDuration } from "./outcome.ts";
import { joinHostPort } from "../lib/http-get.ts";

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
  const address = `"${joinHostPort(host, port)}"`;
  const within = goDuration(timeoutSeconds);
  const tooLate = `timeout: failed to connect service ${address} within ${within}: context deadline exceeded`;
  let connection: Duplex;
  try {
    connection = await dialer.dial({ host, port }, signal);
  } catch (error) {
    return failure(
      signal.aborted
        ? tooLate
        : `error: failed to connect service at ${address}: connection error: desc = "transport: Error while dialing: ${dialFailure(error, host, port)}"`,
    );
  }
  const session = connect(`http://${joinHostPort(host, port)}`, { createConnection: () => connection });
  session.on("error", () => {});
  connection.on("error", () => {});
  try {
    try {
      // The connection is established once the server has sent its SETTINGS.
      await once(session, "remoteSettings", { signal });
    } catch (error) {
      return failure(
        signal.aborted ? tooLate : `error: failed to connect service at ${address}: ${brokenConnection(error)}`,
      );
    }
    return outcomeOf(await checkHealth(session, probe.service, timeoutSeconds * 1000, signal), within);
  } catch (error) {
    return failure(
      signal.aborted
        ? `timeout: health rpc did not complete within ${within}`
        : `error: health rpc probe failed: ${messageOf(error)}`,
    );
  } finally {
    session.destroy();
    connection.destroy();
  }
}

function outcomeOf(answer: HealthAnswer, within: string): ProbeOutcome {
  if (answer.is === "answered") {
    if (answer.status === "SERVING") return { kind: "success", output: "service healthy" };
    return failure(`service unhealthy (responded with "${answer.status}")`);
  }
  const { code, message } = answer;
  if (code === "Unimplemented")
    return failure(
      `error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ${message}`,
    );
  if (code === "DeadlineExceeded") return failure(`timeout: health rpc did not complete within ${within}`);
  return failure(`error: health rpc probe failed: rpc error: code = ${code} desc = ${message}`);
}

function failure(output: string): ProbeOutcome {
  return { kind: "failure", output };
}
