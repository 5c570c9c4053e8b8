import { messageOf } from "../../lib/errors.ts";
import { type Handler, sendJson, sendText } from "../responses.ts";
import { queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";

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
