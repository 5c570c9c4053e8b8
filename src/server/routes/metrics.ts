import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { type Handler, sendText, sendJson } from "../responses.ts";
import type { KubeletServerDeps } from "../ports.ts";
import { messageOf } from "../../lib/errors.ts";
import { queryOf } from "../path.ts";

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

/** /stats/summary: resource usage of the node, its pods and their containers; `only_cpu_and_memory=true` omits networks and disks.
 *  @see https://kubernetes.io/docs/reference/instrumentation/node-metrics/#summary-api-source */
export function statsSummary({ stats, log }: Pick<KubeletServerDeps, "stats" | "log">): Handler {
  return async (request, response, signal) => {
    const values = queryOf(request.originalUrl).getAll("only_cpu_and_memory");
    try {
      sendJson(response, await stats.summary(values.length === 1 && values[0] === "true", signal));
    } catch (error) {
      if (signal.aborted) return void response.destroy();
      log.warn({ err: error }, "cannot measure the node's resource usage");
      sendText(response, 500, `Internal Error: ${messageOf(error)}`);
    }
  };
}
