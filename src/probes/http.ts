import { type HttpResult, BodyError, httpGet } from "../host/http-get.ts";
import { messageOf } from "../lib/errors.ts";
import type { HttpRequest } from "../lib/http-get.ts";
import type { Host } from "../seams/host.ts";
import type { ProbeOutcome } from "./outcome.ts";

/** Sends a GET from the target: status 200 to 399 is a success. A redirect to another host ends the probe with a warning.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#http-probes */
export async function probeHttp(
  dialer: Pick<Host, "dial">,
  first: HttpRequest,
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  try {
    return outcomeOf(await httpGet(dialer, first, signal));
  } catch (error) {
    if (error instanceof BodyError) return { kind: "error", state: "failure", error };
    return { kind: "failure", output: messageOf(error) };
  }
}

function outcomeOf({ status, body }: HttpResult): ProbeOutcome {
  if (status >= 200 && status < 300) return { kind: "success", output: body };
  if (status >= 300 && status < 400)
    return { kind: "warning", output: `Probe terminated redirects, Response body: ${body}` };
  return { kind: "failure", output: `HTTP probe failed with statuscode: ${status}` };
}
