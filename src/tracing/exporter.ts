import { Client, type ServiceError, credentials } from "@grpc/grpc-js";
import { type ExportResult, ExportResultCode } from "@opentelemetry/core";
import { ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";
import type { ReadableSpan, SpanExporter } from "@opentelemetry/sdk-trace";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import type { TracingDeps } from "./config.ts";

/** The kubelet's defaults. */
const defaultEndpoint = "localhost:4317";
const timeoutMs = 10_000;

const method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/** Exports spans over OTLP/gRPC without TLS, like the kubelet. Spans that cannot be sent are dropped with a warning.
 *  @param endpoint a gRPC target. @see https://opentelemetry.io/docs/specs/otlp/#otlpgrpc */
export function createExporter(endpoint: string = defaultEndpoint, { clock, log }: TracingDeps): SpanExporter {
  const client = new Client(grpcTarget(endpoint), credentials.createInsecure(), {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_channelz": 0,
  });
  const warn = createRateLimitedWarning({ log, clock }, "cannot export spans to tracing.endpoint; dropped");
  const send = (spans: ReadableSpan[], done: (error: ServiceError | null) => void) => {
    const message = Buffer.from(ProtobufTraceSerializer.serializeRequest(spans) ?? []);
    const identity = (bytes: Buffer) => bytes;
    client.makeUnaryRequest(method, identity, identity, message, { deadline: clock.now() + timeoutMs }, done);
  };
  return {
    export(spans: ReadableSpan[], report: (result: ExportResult) => void) {
      send(spans, (error) => {
        if (error) warn({ endpoint, spans: spans.length, why: error.details });
        // The failure has been logged; reporting it again would reach a process-wide handler.
        report({ code: ExportResultCode.SUCCESS });
      });
    },
    shutdown() {
      client.close();
      return Promise.resolve();
    },
  };
}

/** The endpoint in grpc-js's notation. */
function grpcTarget(endpoint: string): string {
  return endpoint.replace(/^unix-abstract:\/*/, "unix:\0");
}
