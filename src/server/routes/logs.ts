import type { Request, Response } from "express";
import { messageOf } from "../../lib/errors.ts";
import type { LogOptions, LogSource } from "../../pipeline.ts";
import type { Pod } from "../../objects.ts";
import { sendText } from "../responses.ts";
import { decodeLogOptions } from "../log-options.ts";
import { containerSpec, placeholderText, loggedContainer } from "../lookup.ts";
import { queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";

/** /containerLogs: a container's log as a chunked stream. An error after the first byte appears in the stream itself, because the status
 *  has been sent.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/ */
export function containerLogs(
  deps: KubeletServerDeps,
): (request: Request, response: Response, signal: AbortSignal) => Promise<void> {
  return async (request, response, signal) => {
    const { namespace = "", pod: podName = "", container = "" } = request.params as Record<string, string>;
    const decoded = decodeLogOptions(queryOf(request.originalUrl), deps.targetClock.now());
    if (decoded.kind === "undecodable") return sendText(response, 400, '{"message": "Unable to decode query."}');
    if (decoded.kind === "invalid") return sendText(response, 422, '{"message": "Invalid request."}');
    const { options } = decoded;
    const pod = deps.pods.byName(namespace, podName);
    if (!pod) return sendText(response, 404, `pod ${JSON.stringify(podName)} does not exist`);
    if (!containerSpec(pod, container)) {
      return sendText(
        response,
        404,
        `container ${JSON.stringify(container)} not found in pod ${JSON.stringify(podName)}`,
      );
    }
    const inert = placeholderText(deps, pod);
    if (inert !== undefined) return sendText(response, 400, inert);
    if (options.stream !== "All" && !deps.config.splitLogStreams) {
      const text = `unable to return the given log stream: "${options.stream}". Please enable PodLogsQuerySplitStreams feature gate in kubelet`;
      return sendText(response, 400, text);
    }
    await stream(deps, { pod, container, options }, response, signal);
  };
}

interface Wanted {
  readonly pod: Pod;
  readonly container: string;
  readonly options: LogOptions;
}

async function stream(
  deps: KubeletServerDeps,
  { pod, container, options }: Wanted,
  response: Response,
  signal: AbortSignal,
): Promise<void> {
  let id: string;
  try {
    const status = deps.statuses.get(pod.metadata.uid) ?? pod.status;
    id = loggedContainer(pod.metadata.name, status, container, options.previous);
  } catch (error) {
    return sendText(response, 400, messageOf(error));
  }
  // Sent immediately, so that a client that follows a silent container sees that it is connected.
  response.status(200).type("text/plain").flushHeaders();
  try {
    await deps.logs.read(await logSource(deps, id, signal), options, response, signal);
    response.end();
  } catch (error) {
    if (signal.aborted) return void response.destroy();
    deps.log.warn({ container: id, err: error }, "log stream failed");
    response.end(messageOf(error));
  }
}

/** @param id in Kubernetes' format: `runtime://id`. @throws with the kubelet's text if the runtime has no answer. */
async function logSource({ runtime }: KubeletServerDeps, id: string, signal: AbortSignal): Promise<LogSource> {
  const containerId = id.replace(/^[^:]*:\/\//, "");
  try {
    const { status } = await runtime.containerStatus(containerId, signal);
    return { containerId, logPath: status?.logPath ?? "" };
  } catch (cause) {
    throw new Error(`unable to retrieve container logs for ${id}`, { cause });
  }
}
