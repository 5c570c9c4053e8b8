/** Headers that carry a trace from a caller to whom it calls. @see https://www.w3.org/TR/trace-context/ */
export type TraceHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

export type SpanAttributes = Readonly<Record<string, string | number>>;

export interface SpanOptions {
  readonly attributes?: SpanAttributes;
  /** Where a call leaves or reaches this process; absent for work inside. */
  readonly kind?: "client" | "server";
  /** `none` begins a trace; headers of a request continue that of its sender. Absent: the span that the caller is in. */
  readonly parent?: "none" | TraceHeaders;
}

/** A piece of work under way. */
export interface Span {
  add(attributes: SpanAttributes): void;
  /** Says that the work fails without throwing. @param why an Error is an event of the span, too. */
  fail(why: unknown): void;
}

/** Records what the node does as spans of traces. */
export interface Tracer {
  /** False if nothing is recorded. */
  readonly isOn: boolean;
  /** Does work as a span. @returns what the work does. @throws what the work throws; the span says so. */
  span<T>(name: string, options: SpanOptions, work: (span: Span) => Promise<T>): Promise<T>;
  /** Headers that carry the current span's trace to whom is called; empty outside of spans. */
  readonly headers: () => Readonly<Record<string, string>>;
}

const noSpan: Span = { add: () => undefined, fail: () => undefined };
const noHeaders = {};

/** Records nothing. */
export const noTracer: Tracer = {
  isOn: false,
  span: (_name, _options, work) => work(noSpan),
  headers: () => noHeaders,
};
