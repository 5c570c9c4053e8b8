import type { IncomingHttpHeaders } from "node:http";
import { BlockList, isIP } from "node:net";

/** Headers of every answer: the page runs its own script and style alone, reaches its own origin alone, and is in nobody's frame.
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

/** Why a request is not answered. */
export interface Refused {
  readonly status: number;
  readonly text: string;
}

const local = new BlockList();
local.addSubnet("127.0.0.0", 8, "ipv4");
local.addAddress("::1", "ipv6");

/** True for an address that only this machine, or this Pod, reaches. */
export function isLoopback(address: string): boolean {
  const family = isIP(address);
  return family !== 0 && local.check(address, family === 6 ? "ipv6" : "ipv4");
}

/** Why a request on loopback is refused; undefined for one that is answered. A page of another site may send requests here by a name
 *  of its own that leads to 127.0.0.1 (DNS rebinding). Pure. */
export function refusedOnLoopback({ host }: IncomingHttpHeaders): Refused | undefined {
  const name = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/i.exec(host ?? "");
  const asked = name?.[1] ?? name?.[2] ?? "";
  if (asked.toLowerCase() !== "localhost" && !isLoopback(asked))
    return { status: 403, text: "this page is asked for as localhost or 127.0.0.1 only\n" };
  return undefined;
}

/** Why a request from another site's page is refused; following a link to `/` is not that. Pure.
 *  @see https://www.w3.org/TR/fetch-metadata/ */
export function refusedFromElsewhere(
  path: string,
  { "sec-fetch-site": site }: IncomingHttpHeaders,
): Refused | undefined {
  if (path === "/" || site === undefined || site === "same-origin" || site === "none") return undefined;
  return { status: 403, text: "this page's parts are for the page alone\n" };
}
