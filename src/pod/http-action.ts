import type { Wire } from "../objects.ts";
import type { V1HTTPGetAction } from "@kubernetes/client-node";
import { kubeletVersion } from "../version.ts";
import { type HttpRequest, joinHostPort } from "../lib/http-get.ts";

export type HttpGet = Wire<V1HTTPGetAction>;

/** The kubelet's User-Agent towards containers. @param what `probe` or `lifecycle`. */
export function userAgent(what: "probe" | "lifecycle"): string {
  return `kube-${what}/${/^v?(\d+\.\d+)/.exec(kubeletVersion)?.[1]}`;
}

/** The first request of an HTTP probe or hook. @param host the action's, else the pod's address. @param agent the User-Agent
 *  where the action gives none. */
export function firstRequest(action: HttpGet, host: string, port: number, agent: string): HttpRequest {
  const scheme = action.scheme?.toLowerCase() === "https" ? "https" : "http";
  const given = (action.httpHeaders ?? []).map(({ name, value }) => [name, value ?? ""] as const);
  const hostHeader = given.find(([name]) => name.toLowerCase() === "host")?.[1];
  return {
    scheme,
    host,
    port,
    target: requestTarget(action.path ?? ""),
    hostHeader: hostHeader || joinHostPort(host, port),
    headers: headersOf(given, agent),
  };
}

/** User-Agent and Accept have defaults; one that is given empty is not sent. */
function headersOf(given: readonly (readonly [string, string])[], agent: string): Map<string, string[]> {
  const headers = new Map<string, string[]>();
  for (const [name, value] of given) {
    const known = [...headers.keys()].find((other) => other.toLowerCase() === name.toLowerCase());
    if (name.toLowerCase() !== "host") headers.set(known ?? name, [...(headers.get(known ?? name) ?? []), value]);
  }
  for (const [name, value] of [
    ["User-Agent", agent],
    ["Accept", "*/*"],
  ] as const) {
    const known = [...headers.keys()].find((other) => other.toLowerCase() === name.toLowerCase());
    if (known === undefined) headers.set(name, [value]);
    else if (headers.get(known)?.[0] === "") headers.delete(known);
  }
  return headers;
}

/** A probe's `path` as a request line has it: rooted, escaped, without a fragment; dots in it stay. What is no valid URL is
 *  taken as a path in whole. */
function requestTarget(path: string): string {
  if (/%(?![0-9a-f]{2})/i.test(path)) return rooted(escape(path.replaceAll("%", "%25"), /[^\w\-.~!$&'()*+,;=:@/%]/gu));
  const [beforeFragment = ""] = path.split("#", 1);
  const relative = beforeFragment.replace(/^([a-z][a-z0-9+.-]*:)?\/\/[^/?]*/i, "");
  const [pathname = ""] = relative.split("?", 1);
  return (
    rooted(escape(pathname, /[^\w\-.~!$&'()*+,;=:@/%]/gu)) + escape(relative.slice(pathname.length), /[^\x21-\x7e]/gu)
  );
}

function rooted(path: string): string {
  return path.startsWith("/") ? path : `/${path}`;
}

function escape(text: string, unsafe: RegExp): string {
  return text.replace(unsafe, (character) => encodeURIComponent(character));
}
