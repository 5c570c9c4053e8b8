import type { Wire } from "../objects.ts";
import type { V1HTTPGetAction } from "@kubernetes/client-node";
import { kubeletVersion } from "../version.ts";
import { toLatin1Bytes } from "../lib/latin1-bytes.ts";
import { type GoUrl, emptyUrl, parseUrl, urlText } from "../lib/go-url.ts";
import { type HttpRequest, joinHostPort } from "../lib/http-get.ts";
import { canonicalHeaderName } from "../lib/http-header.ts";

export type HttpGet = Wire<V1HTTPGetAction>;

/** The first request of an HTTP probe or hook, with default User-Agent and Accept headers.
 *  @param host the action's host, or the pod's address if it has none. @throws Error with Go's text for an invalid URL.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#http-probes */
export function httpActionRequest(action: HttpGet, host: string, port: number, from: HttpRequest["from"]): HttpRequest {
  const headers = headersOf(action);
  if (!headers.has("User-Agent")) headers.set("User-Agent", [userAgent(from)]);
  if (!headers.has("Accept")) headers.set("Accept", ["*/*"]);
  else if (headers.get("Accept")?.[0] === "") headers.delete("Accept");
  return { url: urlOf(action, host, port), hostHeader: headers.get("Host")?.[0] ?? "", headers, from };
}

/** The kubelet's User-Agent for requests to containers. */
export function userAgent(from: HttpRequest["from"]): string {
  return `kube-${from}/${/^v?(\d+\.\d+)/.exec(kubeletVersion)?.[1]}`;
}

function headersOf({ httpHeaders = [] }: HttpGet): Map<string, string[]> {
  const headers = new Map<string, string[]>();
  for (const { name, value } of httpHeaders) {
    const key = canonicalHeaderName(toLatin1Bytes(name));
    headers.set(key, [...(headers.get(key) ?? []), toLatin1Bytes(value ?? "")]);
  }
  return headers;
}

/** A path that is not a valid URL reference is used verbatim as the path. */
function urlOf({ scheme = "", path = "" }: HttpGet, host: string, port: number): GoUrl {
  const reference = referenceOf(toLatin1Bytes(path));
  return parseUrl(
    urlText({
      ...reference,
      scheme: toLatin1Bytes(scheme).toLowerCase() || "http",
      host: joinHostPort(toLatin1Bytes(host), port),
    }),
  );
}

function referenceOf(path: string): GoUrl {
  try {
    return parseUrl(path);
  } catch {
    return { ...emptyUrl, path };
  }
}
