import { goCode } from "../lib/grpc-status.ts";
import type { Tracer } from "../lib/tracer.ts";
import { type RuntimeCall, wrapCalls } from "../seams/runtime-calls.ts";
import type { Runtime } from "../seams/runtime.ts";

const imageCalls: ReadonlySet<RuntimeCall> = new Set([
  "listImages",
  "imageStatus",
  "pullImage",
  "removeImage",
  "imageFsInfo",
]);

/** Wraps a runtime so that every call is a span with the name and attributes of the kubelet's gRPC client, for any provider.
 *  @see https://pkg.go.dev/go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc */
export function tracedRuntime(runtime: Runtime, tracer: Tracer): Runtime {
  return wrapCalls(runtime, (name, call) => {
    const method = methodOf(name);
    const attributes = { "rpc.system.name": "grpc", "rpc.method": method };
    return tracer.span(method, { kind: "client", attributes }, async (span) => {
      try {
        const answer = await call();
        span.add({ "rpc.response.status_code": "OK" });
        return answer;
      } catch (error) {
        span.add({ "rpc.response.status_code": goCode(error) });
        throw error;
      }
    });
  });
}

function methodOf(name: RuntimeCall): string {
  const service = imageCalls.has(name) ? "ImageService" : "RuntimeService";
  return `runtime.v1.${service}/${name.charAt(0).toUpperCase()}${name.slice(1)}`;
}
