import { domainToASCII } from "node:url";
import { toLatin1Bytes, fromLatin1Bytes } from "../lib/latin1-bytes.ts";
import { type GoUrl, hasControls, requestUri } from "../lib/go-url.ts";
import { goQuoteBytes } from "../lib/go-quote.ts";
import type { HttpRequest } from "../lib/http-get.ts";
import { isHeaderName, isHeaderValue, switchesProtocol, trimBlanks } from "../lib/http-header.ts";

/** Validates a request like Go's client. @throws Error with its text. */
export function checkRequest({ url, headers }: HttpRequest): void {
  const isHttp = url.scheme === "http" || url.scheme === "https";
  if (!isHttp) throw new Error(`unsupported protocol scheme ${goQuoteBytes(url.scheme)}`);
  for (const [name, values] of headers) {
    if (!isHeaderName(name)) throw new Error(`net/http: invalid header field name ${goQuoteBytes(name)}`);
    if (!values.every(isHeaderValue)) throw new Error(`net/http: invalid header field value for ${goQuoteBytes(name)}`);
  }
  if (url.host === "") throw new Error("http: no Host in request URL");
}

/** Header fields that are not sent as given. */
const ownFields = ["Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"];

/** The head of an HTTP/1.1 request, byte for byte as Go's client writes it. @throws Error with its text. */
export function requestHead(request: HttpRequest): string {
  const { url, headers, from } = request;
  const target = requestUri(url);
  if (hasControls(target)) throw new Error("net/http: can't write control character in Request.URL");
  const lines = [`GET ${target} HTTP/1.1`, `Host: ${authorityOf(request)}`];
  const agent = trimBlanks(headers.get("User-Agent")?.[0] ?? "");
  if (agent) lines.push(`User-Agent: ${agent}`);
  const given = [...headers].filter(([name]) => !ownFields.includes(name));
  for (const [name, values] of [...given, ...ownAuthorization(request)].toSorted(([a], [b]) => (a < b ? -1 : 1)))
    for (const value of values) lines.push(`${name}: ${trimBlanks(value)}`);
  if (from === "lifecycle" && !headers.get("Accept-Encoding")?.[0] && !headers.get("Range")?.[0])
    lines.push("Accept-Encoding: gzip");
  const isClosing = /(^|[ ,\t])close([ ,\t]|$)/i.test(headers.get("Connection")?.[0] ?? "");
  if (from === "probe" && !isClosing && !switchesProtocol(headers)) lines.push("Connection: close");
  return `${lines.join("\r\n")}\r\n\r\n`;
}

/** The Authorization header for a URL with a user. */
export function ownAuthorization({ url, headers }: HttpRequest): [string, string[]][] {
  if (!url.user || headers.get("Authorization")?.[0]) return [];
  const credentials = Buffer.from(`${url.user.name}:${url.user.password ?? ""}`, "latin1").toString("base64");
  return [["Authorization", [`Basic ${credentials}`]]];
}

/** Value of the Host header; empty if invalid. The zone of an IPv6 address is omitted. */
export function authorityOf({ url, hostHeader }: Pick<HttpRequest, "url" | "hostHeader">): string {
  const host = inAscii(hostHeader || url.host);
  if (!/^[\w!$%&'()*+,\-.:;=[\]~]*$/.test(host)) return "";
  return host.startsWith("[") ? host.replace(/%[^%]*(?=\][^\]]*$)/, "") : host;
}

function inAscii(host: string): string {
  // oxlint-disable-next-line no-control-regex
  if (/^[\x00-\x7f]*$/.test(host)) return host;
  const [, name = host, port = ""] = /^([^:]*)(:[^:]*)$/.exec(host) ?? [];
  return domainToASCII(fromLatin1Bytes(name)) + port;
}

/** Name or address to dial. */
export function dialName(host: string): string {
  const text = fromLatin1Bytes(host);
  // oxlint-disable-next-line no-control-regex
  return /^[\x00-\x7f]*$/.test(text) ? text : toLatin1Bytes(domainToASCII(text) || text);
}

/** Port of a URL, or the default port of its scheme. */
export function portOrDefault(port: string, scheme: GoUrl["scheme"]): string {
  return port || (scheme === "https" ? "443" : "80");
}
