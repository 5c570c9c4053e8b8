import { codeOf } from "../lib/errors.ts";
import type { Tracer } from "../lib/tracer.ts";
import { ApiError } from "./api-error.ts";
import type { RawRequest } from "./requests.ts";

export interface RequestSpan {
  /** Headers that propagate the trace to the API server. */
  readonly headers: Readonly<Record<string, string>>;
  /** @param status HTTP status of the response, whose body has not been read yet. */
  answered(status: number): void;
  /** @param error reason why there is no complete response; undefined if the body was read or is no longer needed. */
  end(error?: Error): void;
}

const none: RequestSpan = { headers: {}, answered: () => undefined, end: () => undefined };

/** Starts the span of a request to the API server, with the names and attributes of the kubelet's client.
 *  @see https://pkg.go.dev/go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp */
export function beginRequest(
  tracer: Tracer | undefined,
  server: URL,
  { method, path }: Pick<RawRequest, "method" | "path">,
): RequestSpan | Promise<RequestSpan> {
  if (!tracer?.isOn) return none;
  const attributes = {
    "http.request.method": method,
    "url.full": new URL(path, server).href,
    "server.address": server.hostname.replace(/^\[(.*)\]$/, "$1"),
    ...(server.port && { "server.port": Number(server.port) }),
    "network.protocol.version": "1.1",
  };
  const begun = Promise.withResolvers<RequestSpan>();
  const over = Promise.withResolvers<void>();
  const whole = tracer.span(`HTTP ${method}`, { kind: "client", attributes }, (span) => {
    begun.resolve({
      headers: tracer.headers(),
      answered(status) {
        span.add({ "http.response.status_code": status });
        if (status < 400) return;
        span.add({ "error.type": String(status) });
        span.fail("");
      },
      end(error) {
        if (!error || error instanceof ApiError) return over.resolve();
        span.add({ "error.type": codeOf(error) });
        over.reject(error);
      },
    });
    return over.promise;
  });
  // The sender of the request throws the error.
  whole.catch(() => undefined);
  return begun.promise;
}
