/** Headers that propagate a trace to the callee. @see https://www.w3.org/TR/trace-context/ */
export type TraceHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

export type SpanAttributes = Readonly<Record<string, string | number>>;

export interface SpanOptions {
  readonly attributes?: SpanAttributes;
  /** For a call that leaves or reaches this process; absent for internal work. */
  readonly kind?: "client" | "server";
  /** `none` starts a new trace; request headers continue the sender's trace. Default: the caller's current span. */
  readonly parent?: "none" | TraceHeaders;
}

export interface Span {
  add(attributes: SpanAttributes): void;
  /** Marks the span as failed, for work that does not throw. @param why an Error is also recorded as an event. */
  fail(why: unknown): void;
}

/** Records the node's work as spans. */
export interface Tracer {
  /** False if nothing is recorded. */
  readonly isOn: boolean;
  /** Runs work in a span. @returns the work's result. @throws the work's error, which the span records. */
  span<T>(name: string, options: SpanOptions, work: (span: Span) => Promise<T>): Promise<T>;
  /** Headers that propagate the current span to a callee; empty outside of spans. */
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
