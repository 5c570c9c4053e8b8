import { type HttpResult, BodyError, httpGet } from "../host/http-get.ts";
import { messageOf } from "../lib/errors.ts";
import type { HttpRequest } from "../lib/http-get.ts";
import type { Host } from "../seams/host.ts";
import type { Outcome } from "./outcome.ts";

/** Sends a GET from the target: status 200 to 399 is a success. A redirect to another host ends the probe with a warning.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#http-probes */
export async function probeHttp(dialer: Pick<Host, "dial">, first: HttpRequest, signal: AbortSignal): Promise<Outcome> {
  try {
    return judge(await httpGet(dialer, first, signal));
  } catch (error) {
    if (error instanceof BodyError) return { is: "error", state: "failure", error };
    return { is: "failure", output: messageOf(error) };
  }
}

function judge({ status, body }: HttpResult): Outcome {
  if (status >= 200 && status < 300) return { is: "success", output: body };
  if (status >= 300 && status < 400)
    return { is: "warning", output: `Probe terminated redirects, Response body: ${body}` };
  return { is: "failure", output: `HTTP probe failed with statuscode: ${status}` };
}
