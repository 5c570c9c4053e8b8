import { noTracer } from "../lib/tracer.ts";
import type { NodeTracer, TracingConfig, TracingDeps } from "./config.ts";

/** Creates a node's tracer. OpenTelemetry is loaded only if tracing is configured.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-traces/#kubelet-traces */
export async function openTracer(config: TracingConfig, deps: TracingDeps): Promise<NodeTracer> {
  if (config.endpoint === undefined && config.samplingRatePerMillion === undefined)
    return { ...noTracer, [Symbol.asyncDispose]: () => Promise.resolve() };
  const { createTracer } = await import("./open-telemetry.ts");
  return createTracer(config, deps);
}
