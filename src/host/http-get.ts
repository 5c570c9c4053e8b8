import { hostIn } from "../lib/url-text.ts";
import { type IncomingMessage, request } from "node:http";
import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import { connect as startTls } from "node:tls";
import { messageOf } from "../lib/errors.ts";
import { type HttpRequest, urlOf } from "../lib/http-get.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Host } from "../seams/host.ts";
import { brokenConnection, dialFailure } from "./dial-text.ts";

const maxRedirects = 10;

/** Bytes of an answer that are read. */
export const maxAnswerBytes = 10 * 1024;

/** An answer and the part of its body that was read. */
export interface Answer {
  readonly status: number;
  readonly location: string | undefined;
  readonly body: string;
}

/** The connection broke in the answer's body, which says nothing about the server's verdict. */
export class BodyError extends Error {}

/** Sends a GET from the target, on a connection of its own, over TLS without verification for https. Redirects are followed on
 *  the same host; an answer that redirects elsewhere is returned.
 *  @throws BodyError, else Error with the kubelet's text: `Get "URL": why`; its causes have the details. */
export async function httpGet(dialer: Pick<Host, "dial">, first: HttpRequest, signal: AbortSignal): Promise<Answer> {
  let hop = first;
  const failed = (why: string, cause?: unknown) => new Error(`Get "${urlOf(hop)}": ${why}`, { cause });
  try {
    for (let redirects = 0; redirects < maxRedirects; redirects++) {
      const answer = await exchange(dialer, hop, signal);
      const next = redirected(hop, answer);
      if (!next || next.host !== first.host) return answer;
      hop = next;
    }
  } catch (error) {
    if (error instanceof BodyError)
      throw new BodyError(timedOutOr(signal, "while reading body", error), { cause: error });
    throw failed(timedOutOr(signal, "while awaiting headers", error), error);
  }
  throw failed(`stopped after ${maxRedirects} redirects`);
}

/** The request of a redirect; undefined for any other answer. */
function redirected(hop: HttpRequest, { status, location }: Answer): HttpRequest | undefined {
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined) return undefined;
  const base = urlOf(hop);
  if (!URL.canParse(location, base)) throw new Error(`failed to parse Location header ${JSON.stringify(location)}`);
  const url = new URL(location, base);
  const scheme = url.protocol === "https:" ? "https" : "http";
  // The request's own Host header stays only when the server named no host.
  const hostHeader = URL.canParse(location) ? url.host : hop.hostHeader;
  return {
    scheme,
    host: hostIn(url),
    port: Number(url.port || (scheme === "https" ? 443 : 80)),
    target: url.pathname + url.search,
    hostHeader,
    headers: hop.headers,
  };
}

async function exchange(dialer: Pick<Host, "dial">, hop: HttpRequest, signal: AbortSignal): Promise<Answer> {
  const connection = await dial(dialer, hop, signal);
  const stop = () => connection.destroy();
  signal.addEventListener("abort", stop, { once: true });
  connection.on("error", () => {});
  try {
    if (signal.aborted) stop();
    const way = hop.scheme === "https" ? overTls(connection, hop.host) : connection;
    // Bound to the signal itself: not every end of a connection reaches a pending read.
    const { status, location, response } = await untilAborted(send(way, hop), signal);
    return { status, location, body: response ? await readBody(response, signal) : "" };
  } finally {
    signal.removeEventListener("abort", stop);
    stop();
  }
}

async function dial(dialer: Pick<Host, "dial">, { host, port }: HttpRequest, signal: AbortSignal): Promise<Duplex> {
  try {
    return await dialer.dial({ host, port }, signal);
  } catch (error) {
    throw new Error(dialFailure(error, host, port), { cause: error });
  }
}

function overTls(connection: Duplex, host: string): Duplex {
  return startTls({ socket: connection, rejectUnauthorized: false, ...(isIP(host) === 0 && { servername: host }) });
}

interface Head extends Pick<Answer, "status" | "location"> {
  /** Stream of the body; undefined when no HTTP follows the head. */
  readonly response: IncomingMessage | undefined;
}

/** An unrequested 101 is a complete answer, with or without upgrade headers. */
function send(connection: Duplex, { target, hostHeader, headers }: HttpRequest): Promise<Head> {
  return new Promise((resolve, reject) => {
    const outgoing = request({
      createConnection: () => connection,
      method: "GET",
      path: target,
      headers: { ...Object.fromEntries(headers), Host: hostHeader, Connection: "close" },
      maxHeaderSize: 1024 * 1024,
    });
    const switched = () => resolve({ status: 101, location: undefined, response: undefined });
    outgoing.once("response", (response) => {
      resolve({ status: response.statusCode ?? 0, location: response.headers.location, response });
    });
    outgoing.once("upgrade", switched);
    outgoing.on("information", ({ statusCode }) => void (statusCode === 101 && switched()));
    outgoing.on("error", (error) => reject(new Error(brokenConnection(error), { cause: error })));
    outgoing.end();
  });
}

async function readBody(response: IncomingMessage, signal: AbortSignal): Promise<string> {
  try {
    return await untilAborted(firstBytes(response), signal);
  } catch (error) {
    throw new BodyError(brokenConnection(error), { cause: error });
  }
}

async function firstBytes(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.length;
    if (length >= maxAnswerBytes) break;
  }
  return Buffer.concat(chunks).subarray(0, maxAnswerBytes).toString();
}

function timedOutOr(signal: AbortSignal, when: string, error: unknown): string {
  if (!signal.aborted) return messageOf(error);
  const what = when === "while reading body" ? "or context cancellation" : "exceeded";
  return `context deadline exceeded (Client.Timeout ${what} ${when})`;
}
