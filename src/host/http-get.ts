import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type ByteReader, createByteReader } from "../lib/byte-reader.ts";
import { toLatin1Bytes } from "../lib/latin1-bytes.ts";
import { messageOf } from "../lib/errors.ts";
import { goQuoteBytes } from "../lib/go-quote.ts";
import { type GoUrl, hostOf, parseUrl, portOf, resolveReference, redactedUrl, urlWithoutUser } from "../lib/go-url.ts";
import { type HttpRequest, joinHostPort } from "../lib/http-get.ts";
import { readBody, readHead } from "../lib/http1-response.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { Host } from "../seams/host.ts";
import { brokenConnection, dialFailure } from "./dial-text.ts";
import type { OpenResponse } from "./http-response.ts";
import { openHttp2 } from "./http2-get.ts";
import { checkRequest, dialName, portOrDefault, requestHead } from "./http-request.ts";
import { TlsHandshakeError, alertOf, overTls } from "./http-tls.ts";

const maxRedirects = 10;

/** Maximum bytes read of a response body. */
export const maxBodyBytes = 10 * 1024;

/** Maximum bytes read of a redirect's body before it is followed. */
const maxRedirectBytes = 2 * 1024;

/** Maximum bytes of a response's headers: a tenth of what Go's client accepts. */
const maxHeadBytes = 1024 * 1024;

/** A response and the part of its body that was read. */
export interface HttpResult {
  readonly status: number;
  readonly body: string;
}

/** The connection broke while reading the body, so the probe has no result. */
export class BodyError extends Error {}

/** Sends a GET from the target over a new connection without a proxy, and over TLS without verification for https. Sends,
 *  accepts and reports the same as Go's client with the kubelet's settings. Follows redirects to the same host; returns a
 *  response that redirects elsewhere.
 *  @throws BodyError; otherwise Error with the kubelet's text `Get "URL": why` and the details as causes. */
export async function httpGet(
  dialer: Pick<Host, "dial">,
  first: HttpRequest,
  signal: AbortSignal,
): Promise<HttpResult> {
  let hop = first;
  const failed = (url: string, why: string, cause?: unknown) =>
    new Error(`Get ${goQuoteBytes(url)}: ${why}`, { cause });
  for (let hops = 1; ; hops++) {
    using answer = await open(dialer, hop, signal).catch((error: unknown) => {
      throw failed(redactedUrl(hop.url), timedOutOr(signal, "while awaiting headers", error), error);
    });
    const { status, location } = answer;
    if (!location || ![301, 302, 303, 307, 308].includes(status)) return await read(answer, signal);
    const place = parsedLocation(location, (why) => failed(redactedUrl(hop.url), why));
    const next = redirected(first, hop, place);
    if (hostOf(next.url) !== hostOf(first.url)) return await read(answer, signal);
    if (answer.length === undefined || answer.length <= maxRedirectBytes)
      await untilAborted(answer.read(maxRedirectBytes), signal).catch(() => {});
    if (hops >= maxRedirects) throw failed(location, `stopped after ${maxRedirects} redirects`);
    hop = next;
  }
}

async function read(answer: OpenResponse, signal: AbortSignal): Promise<HttpResult> {
  try {
    const body = await untilAborted(answer.read(maxBodyBytes), signal);
    return { status: answer.status, body: body.toString() };
  } catch (error) {
    throw new BodyError(timedOutOr(signal, "while reading body", error), { cause: error });
  }
}

function parsedLocation(location: string, failed: (why: string) => Error): GoUrl {
  try {
    return parseUrl(location);
  } catch (error) {
    throw failed(`failed to parse Location header ${goQuoteBytes(location)}: ${messageOf(error)}`);
  }
}

/** The request that follows a redirect, with the first request's headers; a custom Host header is kept only if the Location
 *  has no host. */
function redirected(first: HttpRequest, hop: HttpRequest, place: GoUrl): HttpRequest {
  const url = resolveReference(hop.url, place);
  const isOwnHost = hop.hostHeader !== hop.url.host && place.scheme === "";
  const isLessSecure = hop.url.scheme === "https" && url.scheme === "http";
  const referer = isLessSecure ? "" : first.headers.get("Referer")?.[0] || urlWithoutUser(hop.url);
  return {
    ...hop,
    url,
    hostHeader: isOwnHost ? hop.hostHeader : "",
    headers: new Map([...first.headers, ...(referer ? [["Referer", [referer]] as const] : [])]),
  };
}

/** Sends a request and reads the response's head. */
async function open(dialer: Pick<Host, "dial">, hop: HttpRequest, signal: AbortSignal): Promise<OpenResponse> {
  checkRequest(hop);
  const connection = await dial(dialer, hop.url, signal);
  connection.on("error", () => {});
  const stop = () => connection.destroy();
  signal.addEventListener("abort", stop, { once: true });
  const end = () => {
    signal.removeEventListener("abort", stop);
    stop();
  };
  try {
    if (signal.aborted) stop();
    // Race with the signal itself: not every closed connection ends a pending read.
    return await untilAborted(sendRequest(connection, hop, end, signal), signal);
  } catch (error) {
    end();
    throw error;
  }
}

async function sendRequest(
  connection: Duplex,
  hop: HttpRequest,
  end: () => void,
  signal: AbortSignal,
): Promise<OpenResponse> {
  const explain = explainer(connection);
  if (hop.url.scheme !== "https") return await sendHttp1(connection, hop, { end, explain });
  // The kubelet's probes offer HTTP/2, its lifecycle hooks do not.
  const protocols = hop.from === "probe" ? ["h2", "http/1.1"] : [];
  const tls = await overTls(connection, hostOf(hop.url), protocols, signal).catch((error: unknown) => {
    throw explain(error);
  });
  return tls.alpnProtocol === "h2" ? await openHttp2(tls, hop, end) : await sendHttp1(tls, hop, { end, explain });
}

async function dial(dialer: Pick<Host, "dial">, url: GoUrl, signal: AbortSignal): Promise<Duplex> {
  const host = dialName(hostOf(url));
  const port = portOrDefault(portOf(url), url.scheme);
  if (Number(port) > 65535) throw new Error(`dial tcp: address ${port}: invalid port`);
  try {
    return await dialer.dial({ host, port: Number(port) }, signal);
  } catch (error) {
    throw new Error(toLatin1Bytes(dialFailure(error, host, Number(port))), { cause: error });
  }
}

interface Connected {
  readonly end: () => void;
  /** Converts a connection error to Go's text. */
  readonly explain: (error: unknown) => Error;
}

async function sendHttp1(connection: Duplex, hop: HttpRequest, { end, explain }: Connected): Promise<OpenResponse> {
  const head = requestHead(hop);
  const reader = createByteReader(connection);
  connection.write(Buffer.from(head, "latin1"));
  const response = await readResponseHead(reader, explain);
  const { status, headers, bodyEnd } = response;
  return {
    status,
    location: headers.get("Location")?.[0],
    length: typeof bodyEnd === "string" ? undefined : bodyEnd.length,
    read: (maxBytes) =>
      readBody(reader, response, maxBytes).catch((error: unknown) => {
        throw explain(error);
      }),
    [Symbol.dispose]: end,
  };
}

/** An error before the response begins is reported as is, a later one as a broken connection. */
async function readResponseHead(reader: ByteReader, explain: Connected["explain"]): ReturnType<typeof readHead> {
  const start = await reader.peek(1).catch((error: unknown) => {
    throw explain(error);
  });
  if (start.length === 0) throw new Error("EOF");
  try {
    return await readHead(reader, maxHeadBytes);
  } catch (error) {
    throw new Error(`net/http: HTTP/1.x transport connection broken: ${explain(error).message}`, { cause: error });
  }
}

/** Formats connection errors with the two endpoints, if known. */
function explainer(connection: Duplex): (error: unknown) => Error {
  const ends = connection instanceof Socket ? endsOf(connection) : undefined;
  return (error) => {
    if (error instanceof TlsHandshakeError) return error;
    const why = alertOf(error) ?? brokenConnection(error);
    const text = ends && /^(read|write): /.test(why) ? why.replace(/^(\w+): /, `$1 tcp ${ends}: $1: `) : why;
    return new Error(text, { cause: error });
  };
}

function endsOf({ localAddress = "", localPort = 0, remoteAddress = "", remotePort = 0 }: Socket): string {
  return `${joinHostPort(localAddress, localPort)}->${joinHostPort(remoteAddress, remotePort)}`;
}

function timedOutOr(signal: AbortSignal, when: string, error: unknown): string {
  if (!signal.aborted) return messageOf(error);
  const what = when === "while reading body" ? "or context cancellation" : "exceeded";
  return `context deadline exceeded (Client.Timeout ${what} ${when})`;
}
