import { AsyncLocalStorage } from "node:async_hooks";
import {
  type Context,
  ROOT_CONTEXT,
  type Span as OtelSpan,
  SpanKind,
  SpanStatusCode,
  defaultTextMapGetter,
  defaultTextMapSetter,
  trace,
} from "@opentelemetry/api";
import {
  CompositePropagator,
  W3CBaggagePropagator,
  W3CTraceContextPropagator,
  type ExportResult,
  ExportResultCode,
} from "@opentelemetry/core";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  AlwaysOffSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type ReadableSpan,
  type SpanExporter,
} from "@opentelemetry/sdk-trace";
import { Client, type ServiceError, credentials } from "@grpc/grpc-js";
import { ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";
import { messageOf } from "../lib/errors.ts";
import type { Span, SpanOptions, Tracer } from "../lib/tracer.ts";
import type { NodeTracer, TracingConfig, TracingDeps } from "./config.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";

/** The kubelet's service name, and its instrumentation scope. */
const serviceName = "kubelet";
const instrumentationScope = "k8s.io/kubernetes/pkg/kubelet";

/** Timeout for sending the last spans on disposal, milliseconds. */
const flushTimeoutMs = 1000;

/** A span in progress, and the span around it. */
interface SpanScope {
  /** Undefined once the span has ended: work that outlives it (such as a watch) is not attributed to it and does not retain it. */
  context: Context | undefined;
  readonly outer: SpanScope | undefined;
}

const kinds = { client: SpanKind.CLIENT, server: SpanKind.SERVER };

/** Traces with OpenTelemetry like the kubelet: sampled by rate unless the caller has decided, and exported in batches. At most 2048 spans
 *  are queued; further ones are dropped. */
export function createTracer({ endpoint, samplingRatePerMillion = 0 }: TracingConfig, deps: TracingDeps): NodeTracer {
  const sampled = samplingRatePerMillion > 0;
  const root = sampled ? new TraceIdRatioBasedSampler(samplingRatePerMillion / 1_000_000) : new AlwaysOffSampler();
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ "service.name": serviceName, "host.name": deps.nodeName }),
    sampler: new ParentBasedSampler({ root }),
    spanProcessors: [new BatchSpanProcessor({ exporter: createExporter(endpoint, deps) })],
  });
  return {
    ...createNodeTracer(provider),
    [Symbol.asyncDispose]: () => Promise.race([provider.shutdown(), deps.clock.sleep(flushTimeoutMs)]),
  };
}

function createNodeTracer(provider: TracerProvider): Tracer {
  const spans = provider.getTracer(instrumentationScope);
  const scopes = new AsyncLocalStorage<SpanScope>();
  const propagator = new CompositePropagator({
    propagators: [new W3CTraceContextPropagator(), new W3CBaggagePropagator()],
  });
  const currentScope = (): SpanScope | undefined => {
    let scope = scopes.getStore();
    while (scope && !scope.context) scope = scope.outer;
    return scope;
  };
  const contextOf = (parent: SpanOptions["parent"], place: SpanScope | undefined): Context => {
    if (parent === undefined) return place?.context ?? ROOT_CONTEXT;
    return parent === "none" ? ROOT_CONTEXT : propagator.extract(ROOT_CONTEXT, parent, defaultTextMapGetter);
  };
  return {
    isOn: true,
    async span(name, { attributes = {}, kind, parent }, work) {
      const outer = currentScope();
      const within = contextOf(parent, outer);
      const span = spans.startSpan(name, { attributes, kind: kind ? kinds[kind] : SpanKind.INTERNAL }, within);
      const place: SpanScope = { context: trace.setSpan(within, span), outer };
      try {
        return await scopes.run(place, () => work(spanHandle(span)));
      } catch (error) {
        fail(span, error);
        throw error;
      } finally {
        place.context = undefined;
        span.end();
      }
    },
    headers() {
      const headers: Record<string, string> = {};
      propagator.inject(currentScope()?.context ?? ROOT_CONTEXT, headers, defaultTextMapSetter);
      return headers;
    },
  };
}

function spanHandle(span: OtelSpan): Span {
  return { add: (attributes) => void span.setAttributes(attributes), fail: (why) => fail(span, why) };
}

function fail(span: OtelSpan, why: unknown): void {
  const message = messageOf(why);
  if (why instanceof Error) span.recordException({ name: why.name, message });
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

/** The kubelet's defaults. */
const defaultEndpoint = "localhost:4317";
const timeoutMs = 10_000;

const method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/** Exports spans over OTLP/gRPC without TLS, like the kubelet. Spans that cannot be sent are dropped with a warning.
 *  @param endpoint a gRPC target. @see https://opentelemetry.io/docs/specs/otlp/#otlpgrpc */
function createExporter(endpoint: string = defaultEndpoint, { clock, log }: TracingDeps): SpanExporter {
  const client = new Client(grpcTarget(endpoint), credentials.createInsecure(), {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_channelz": 0,
  });
  const warn = createRateLimitedWarning({ log, clock }, "cannot export spans to tracing.endpoint; dropping them");
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
