import type { GoUrl } from "./go-url.ts";

/** An HTTP GET as data. Its texts are bytes, one a character (latin1). */
export interface HttpRequest {
  readonly url: GoUrl;
  /** Value of the Host header; empty for the URL's host. */
  readonly hostHeader: string;
  /** By canonical name, as `X-Name`; one that is no valid name stays as it was given. */
  readonly headers: ReadonlyMap<string, readonly string[]>;
  /** Whose client sends it. */
  readonly from: "probe" | "lifecycle";
}

/** Host and port as one text, an IPv6 address in brackets. */
export function joinHostPort(host: string, port: number | string): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
