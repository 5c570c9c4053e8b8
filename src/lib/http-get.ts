/** An HTTP GET as data. */
export interface HttpRequest {
  readonly scheme: "http" | "https";
  /** Without brackets. */
  readonly host: string;
  readonly port: number;
  /** Path and query, as the request line has them. */
  readonly target: string;
  /** Host header value. */
  readonly hostHeader: string;
  /** All headers but Host, by the name first given. */
  readonly headers: ReadonlyMap<string, readonly string[]>;
}

/** The request's URL, as failures show it. */
export function urlOf({ scheme, host, port, target }: HttpRequest): string {
  return `${scheme}://${joinHostPort(host, port)}${target}`;
}

/** Host and port as one text, an IPv6 address in brackets. */
export function joinHostPort(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
