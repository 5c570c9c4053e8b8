import type { Response } from "express";
import { messageOf } from "../../lib/errors.ts";
import type { LogOptions, LogSource } from "../../pipeline.ts";
import type { Pod } from "../../objects.ts";
import { type Handler, sendText } from "../responses.ts";
import { containerSpec, placeholderText, loggedContainer } from "../lookup.ts";
import { queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";

/** /containerLogs: a container's log as a chunked stream. An error after the first byte appears in the stream itself, because the status
 *  has been sent.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/ */
export function containerLogs(deps: KubeletServerDeps): Handler {
  return async (request, response, signal) => {
    const { namespace = "", pod: podName = "", container = "" } = request.params as Record<string, string>;
    const decoded = decodeLogOptions(queryOf(request.originalUrl), deps.targetClock.now());
    if (decoded.kind === "undecodable") return sendText(response, 400, '{"message": "Unable to decode query."}');
    if (decoded.kind === "invalid") return sendText(response, 422, '{"message": "Invalid request."}');
    const { options } = decoded;
    const pod = deps.desired.byName(namespace, podName);
    if (!pod) return sendText(response, 404, `pod ${JSON.stringify(podName)} does not exist`);
    if (!containerSpec(pod, container)) {
      return sendText(
        response,
        404,
        `container ${JSON.stringify(container)} not found in pod ${JSON.stringify(podName)}`,
      );
    }
    const placeholder = placeholderText(deps, pod);
    if (placeholder !== undefined) return sendText(response, 400, placeholder);
    if (options.stream !== "All" && !deps.config.splitLogStreams) {
      const text = `unable to return the given log stream: "${options.stream}". Please enable PodLogsQuerySplitStreams feature gate in kubelet`;
      return sendText(response, 400, text);
    }
    await stream(deps, { pod, container, options }, response, signal);
  };
}

async function stream(
  deps: KubeletServerDeps,
  { pod, container, options }: { readonly pod: Pod; readonly container: string; readonly options: LogOptions },
  response: Response,
  signal: AbortSignal,
): Promise<void> {
  let id: string;
  try {
    const status = deps.status.get(pod.metadata.uid) ?? pod.status;
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

/** @param id in Kubernetes' format: `runtime://id`. @throws an error with the kubelet's text if the runtime has no answer. */
async function logSource({ runtime }: KubeletServerDeps, id: string, signal: AbortSignal): Promise<LogSource> {
  const containerId = id.replace(/^[^:]*:\/\//, "");
  try {
    const { status } = await runtime.containerStatus(containerId, signal);
    return { containerId, logPath: status?.logPath ?? "" };
  } catch (cause) {
    throw new Error(`unable to retrieve container logs for ${id}`, { cause });
  }
}

type DecodedLogOptions =
  | { readonly kind: "options"; readonly options: LogOptions }
  | { readonly kind: "undecodable" }
  | { readonly kind: "invalid" };

const streams = ["All", "Stdout", "Stderr"] as const;
const maxInt64 = 2n ** 63n - 1n;

class Undecodable extends Error {}

/** Parses the query of a log request: PodLogOptions of v1, and the older `tail`.
 *  @param now milliseconds since the epoch from which `sinceSeconds` counts back, on the clock that stamps the log's lines.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod */
function decodeLogOptions(query: URLSearchParams, now: number): DecodedLogOptions {
  try {
    return decode(query, now);
  } catch (error) {
    if (error instanceof Undecodable) return { kind: "undecodable" };
    throw error;
  }
}

function decode(query: URLSearchParams, now: number): DecodedLogOptions {
  const tail = query.get("tail");
  const tailLines = tail === "all" ? undefined : integer(tail || query.get("tailLines"));
  const limitBytes = integer(query.get("limitBytes"));
  const sinceSeconds = integer(query.get("sinceSeconds"));
  const sinceTime = time(query.get("sinceTime"));
  const stream = streams.find((name) => name === (query.get("stream") ?? "All"));
  const invalid =
    (tailLines !== undefined && tailLines < 0) ||
    (limitBytes !== undefined && limitBytes < 1) ||
    (sinceSeconds !== undefined && (sinceSeconds < 1 || query.has("sinceTime"))) ||
    stream === undefined ||
    (stream !== "All" && tailLines !== undefined);
  if (invalid) return { kind: "invalid" };
  const since = sinceSeconds === undefined ? sinceTime : now - sinceSeconds * 1000;
  const options: LogOptions = {
    follow: flag(query.get("follow")),
    previous: flag(query.get("previous")),
    timestamps: flag(query.get("timestamps")),
    stream,
    ...(tailLines !== undefined && { tailLines }),
    ...(limitBytes !== undefined && { limitBytes }),
    ...(since !== undefined && { since }),
  };
  return { kind: "options", options };
}

/** Kubernetes' rule for booleans in a query: present, and neither `0` nor `false`. */
function flag(value: string | null): boolean {
  return value !== null && value !== "0" && value.toLowerCase() !== "false";
}

function integer(value: string | null): number | undefined {
  if (value === null) return undefined;
  if (!/^[+-]?\d+$/.test(value)) throw new Undecodable();
  const number = BigInt(value.replace(/^\+/, ""));
  if (number > maxInt64 || number < -maxInt64 - 1n) throw new Undecodable();
  return Number(number);
}

/** Milliseconds since the epoch; undefined for an empty value or `null`. */
function time(value: string | null): number | undefined {
  if (value === null || value === "" || value === "null") return undefined;
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)$/.test(value)) throw new Undecodable();
  const at = Date.parse(value.replace(",", "."));
  if (Number.isNaN(at)) throw new Undecodable();
  return at;
}
