import type { IncomingHttpHeaders } from "node:http";
import { BlockList, isIP } from "node:net";

/** Headers of every response: the page runs only its own script and style, connects only to its own origin, and cannot be framed.
 *  @see https://www.w3.org/TR/CSP3/ */
export const securityHeaders: Readonly<Record<string, string>> = {
  "Content-Security-Policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; "),
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Cache-Control": "no-store",
};

/** What a caller may see. */
export interface Viewer {
  maySee(node: string): boolean;
  /** True if the caller may see the machines that this process does not serve, and the release's replicas. */
  readonly maySeeFleet: boolean;
}

export interface RefusedRequest {
  readonly status: number;
  readonly text: string;
}

const local = new BlockList();
local.addSubnet("127.0.0.0", 8, "ipv4");
local.addAddress("::1", "ipv6");

/** True for an address that can be reached only from this machine or Pod. */
export function isLoopback(address: string): boolean {
  const family = isIP(address);
  return family !== 0 && local.check(address, family === 6 ? "ipv6" : "ipv4");
}

/** Refuses requests on loopback whose Host is neither localhost nor a loopback address: another site's page may send requests to a
 *  host name of that site that resolves to 127.0.0.1 (DNS rebinding). Undefined if allowed. Pure. */
export function loopbackRefusal({ host }: IncomingHttpHeaders): RefusedRequest | undefined {
  const name = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/i.exec(host ?? "");
  const asked = name?.[1] ?? name?.[2] ?? "";
  if (asked.toLowerCase() !== "localhost" && !isLoopback(asked))
    return { status: 403, text: "open this page as localhost or 127.0.0.1\n" };
  return undefined;
}

/** Refuses requests from another site's page, except navigation to `/`. Undefined if allowed. Pure.
 *  @see https://www.w3.org/TR/fetch-metadata/ */
export function crossSiteRefusal(
  path: string,
  { "sec-fetch-site": site }: IncomingHttpHeaders,
): RefusedRequest | undefined {
  if (path === "/" || site === undefined || site === "same-origin" || site === "none") return undefined;
  return { status: 403, text: "cross-site requests are not allowed\n" };
}
