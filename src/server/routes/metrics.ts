import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { type Handler, sendText } from "../responses.ts";
import type { KubeletServerDeps } from "../ports.ts";

const zip = promisify(gzip);

/** /metrics and related paths: Prometheus' text format, regardless of the requested format, compressed if the scraper accepts it.
 *  @see https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */
export function metrics(text: (signal: AbortSignal) => Promise<string>): Handler {
  return async (request, response, signal) => {
    const body = await text(signal);
    response.status(200).setHeader("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    if (!request.acceptsEncodings("gzip")) return void response.end(body);
    response.setHeader("Content-Encoding", "gzip");
    response.end(await zip(body));
  };
}

/** /metrics/slis: results of health checks; DELETE empties it.
 *  @see https://kubernetes.io/docs/reference/instrumentation/slis/ */
export function sliMetrics({ slis, resetSlis }: KubeletServerDeps["metrics"]): Handler {
  const show = metrics(slis);
  return async (request, response, signal) => {
    if (request.method !== "DELETE") return show(request, response, signal);
    resetSlis();
    sendText(response, 200, "metrics reset\n");
  };
}
