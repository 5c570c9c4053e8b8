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
import { CompositePropagator, W3CBaggagePropagator, W3CTraceContextPropagator } from "@opentelemetry/core";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  AlwaysOffSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import { messageOf } from "../lib/errors.ts";
import type { Span, SpanOptions, Tracer } from "../lib/tracer.ts";
import { createExporter } from "./exporter.ts";
import type { NodeTracer, TracingConfig, TracingDeps } from "./config.ts";

/** The kubelet's service name, and its instrumentation scope. */
const component = "kubelet";
const scope = "k8s.io/kubernetes/pkg/kubelet";

/** Timeout for sending the last spans on disposal, milliseconds. */
const lastMs = 1000;

/** A span in progress and the one around it. */
interface Place {
  /** Undefined once the span has ended: work that outlives it (such as a watch) is not attributed to it and does not retain it. */
  context: Context | undefined;
  readonly outer: Place | undefined;
}

const kinds = { client: SpanKind.CLIENT, server: SpanKind.SERVER };

/** Traces with OpenTelemetry like the kubelet: sampled by rate unless the caller has decided, and exported in batches. At most 2048 spans
 *  are queued; further ones are dropped. */
export function createTracer({ endpoint, samplingRatePerMillion = 0 }: TracingConfig, deps: TracingDeps): NodeTracer {
  const sampled = samplingRatePerMillion > 0;
  const root = sampled ? new TraceIdRatioBasedSampler(samplingRatePerMillion / 1_000_000) : new AlwaysOffSampler();
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ "service.name": component, "host.name": deps.nodeName }),
    sampler: new ParentBasedSampler({ root }),
    spanProcessors: [new BatchSpanProcessor({ exporter: createExporter(endpoint, deps) })],
  });
  return {
    ...tracerOf(provider),
    [Symbol.asyncDispose]: () => Promise.race([provider.shutdown(), deps.clock.sleep(lastMs)]),
  };
}

function tracerOf(provider: TracerProvider): Tracer {
  const spans = provider.getTracer(scope);
  const places = new AsyncLocalStorage<Place>();
  const propagator = new CompositePropagator({
    propagators: [new W3CTraceContextPropagator(), new W3CBaggagePropagator()],
  });
  const here = (): Place | undefined => {
    let place = places.getStore();
    while (place && !place.context) place = place.outer;
    return place;
  };
  const contextOf = (parent: SpanOptions["parent"], place: Place | undefined): Context => {
    if (parent === undefined) return place?.context ?? ROOT_CONTEXT;
    return parent === "none" ? ROOT_CONTEXT : propagator.extract(ROOT_CONTEXT, parent, defaultTextMapGetter);
  };
  return {
    isOn: true,
    async span(name, { attributes = {}, kind, parent }, work) {
      const outer = here();
      const within = contextOf(parent, outer);
      const span = spans.startSpan(name, { attributes, kind: kind ? kinds[kind] : SpanKind.INTERNAL }, within);
      const place: Place = { context: trace.setSpan(within, span), outer };
      try {
        return await places.run(place, () => work(handleOf(span)));
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
      propagator.inject(here()?.context ?? ROOT_CONTEXT, headers, defaultTextMapSetter);
      return headers;
    },
  };
}

function handleOf(span: OtelSpan): Span {
  return { add: (attributes) => void span.setAttributes(attributes), fail: (why) => fail(span, why) };
}

function fail(span: OtelSpan, why: unknown): void {
  const message = messageOf(why);
  if (why instanceof Error) span.recordException({ name: why.name, message });
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}
