import type { SpanOptions, Tracer } from "../../src/lib/tracer.ts";

/** A span that has ended. */
export interface FakeSpan extends SpanOptions {
  readonly name: string;
  /** What was said of it by the end; the reason as text. */
  readonly added: Readonly<Record<string, string | number>>;
  readonly failed?: string;
}

/** A tracer that keeps what it is told. */
export function fakeTracer(): Tracer & { readonly spans: readonly FakeSpan[] } {
  const spans: FakeSpan[] = [];
  return {
    isOn: true,
    spans,
    async span(name, options, work) {
      const added: Record<string, string | number> = {};
      let failed: string | undefined;
      try {
        return await work({
          add: (attributes) => void Object.assign(added, attributes),
          fail: (why) => void (failed = String(why)),
        });
      } catch (error) {
        failed = String(error);
        throw error;
      } finally {
        spans.push({ name, ...options, added, ...(failed !== undefined && { failed }) });
      }
    },
    headers: () => ({}),
  };
}
