import type { ClockAndLog } from "../lib/log.ts";
import type { Tracer } from "../lib/tracer.ts";

/** The group `tracing` of KubeletConfiguration. */
export interface TracingConfig {
  readonly endpoint: string | undefined;
  readonly samplingRatePerMillion: number | undefined;
}

export interface TracingDeps extends ClockAndLog {
  readonly nodeName: string;
}

/** A node's tracer; disposing it flushes pending spans. */
export interface NodeTracer extends Tracer, AsyncDisposable {}
