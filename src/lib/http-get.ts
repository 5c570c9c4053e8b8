import type { GoUrl } from "./go-url.ts";

/** Parameters of an HTTP GET. Texts are latin1 strings of bytes. */
export interface HttpRequest {
  readonly url: GoUrl;
  /** Value of the Host header; empty to use the URL's host. */
  readonly hostHeader: string;
  /** By canonical name (`X-Name`); invalid names are kept as given. */
  readonly headers: ReadonlyMap<string, readonly string[]>;
  /** Which of the kubelet's clients sends the request. */
  readonly from: "probe" | "lifecycle";
}

/** Joins host and port, with an IPv6 address in brackets. */
export function joinHostPort(host: string, port: number | string): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
