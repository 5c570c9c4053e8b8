import type { Readable } from "node:stream";
import { type SecureContext, createSecureContext } from "node:tls";
import { Agent, type Dispatcher, ProxyAgent, request } from "undici";
import { abortError, CodedError, messageOf } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { Credentials, TlsOptions } from "./credentials.ts";

export interface RawRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Path and query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A response whose body still has to be read or destroyed. */
export interface RawResponse {
  readonly status: number;
  readonly retryAfter?: string | undefined;
  readonly body: Readable;
  /** True if the connection broke before the end of the body, which the stream itself does not show. */
  readonly cut?: () => boolean;
}

/** Sends HTTP/1.1 requests over pooled connections. */
export type Requests = ReturnType<typeof createRequests>;

/** Time after which an idle connection is closed, milliseconds: shorter than the API server's own 90 s, so that no request is
 *  sent on a connection that the server is closing. */
const keepAliveMs = 85_000;
/** Timeout for a response, milliseconds: the API server gives up on an ordinary request after 60 s. */
export const responseTimeoutMs = 65_000;
const connectTimeoutMs = 10_000;
/** TCP keepalive: probes after this much idle time, one per second; ten unanswered ones end the connection (Node's values). This is the
 *  only liveness check of watches over HTTP/1.1. */
const tcpKeepAliveMs = 15_000;

/** Connections are kept for one generation of credentials; older ones close when idle. */
export function createRequests() {
  let pool: { readonly generation: number; readonly dispatcher: Dispatcher } | undefined;
  /** Connection pools that are closing. */
  const old = new Set<Dispatcher>();
  const poolFor = (credentials: Credentials): Dispatcher => {
    if (pool?.generation !== credentials.generation) {
      if (pool) retire(pool.dispatcher, old);
      pool = { generation: credentials.generation, dispatcher: dispatcherFor(credentials) };
    }
    return pool.dispatcher;
  };
  const send = async (
    credentials: Credentials,
    { method, path, headers, body, signal }: RawRequest,
    bodyTimeout: number,
  ): Promise<RawResponse> => {
    const dispatcher = poolFor(credentials);
    const answered = request(new URL(path, credentials.server), {
      dispatcher,
      method,
      headers: { ...headers, ...credentials.headers },
      body: body ?? null,
      signal: signal ?? null,
      headersTimeout: responseTimeoutMs,
      bodyTimeout,
    });
    try {
      // undici checks a signal only once it is connected.
      const answer = await untilAborted(answered, signal);
      const retryAfter = answer.headers["retry-after"];
      return {
        status: answer.statusCode,
        retryAfter: Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
        body: answer.body,
      };
    } catch (error) {
      throw unreachable(credentials.server, error, signal);
    }
  };
  return {
    /** @throws CodedError unavailable if there is no response, or the signal's reason. */
    send: (credentials: Credentials, raw: RawRequest): Promise<RawResponse> =>
      send(credentials, raw, responseTimeoutMs),
    /** Like `send`, without a timeout between pieces of the body, as watches may be silent for minutes. */
    stream: (credentials: Credentials, raw: RawRequest): Promise<RawResponse> => send(credentials, raw, 0),
    /** Closes every connection: requests in progress fail with `unavailable`, the next one opens a new connection. */
    renew() {
      if (pool) discard(pool.dispatcher, old);
      pool = undefined;
    },
    async [Symbol.asyncDispose]() {
      await Promise.allSettled([pool?.dispatcher.destroy(), ...[...old].map((each) => each.destroy())]);
    },
  };
}

/** Returns the coded error for a request without a response. */
export function unreachable(server: URL, error: unknown, signal: AbortSignal | undefined): CodedError {
  if (signal?.aborted) return abortError(signal);
  if (error instanceof CodedError) return error;
  return new CodedError("unavailable", `${server.origin}: ${messageOf(error) || "connection failed"}`, {
    cause: error,
  });
}

function dispatcherFor({ server, proxy, tls }: Credentials): Dispatcher {
  const pool = { allowH2: false, keepAliveTimeout: keepAliveMs, keepAliveMaxTimeout: keepAliveMs };
  const connect = { timeout: connectTimeoutMs, keepAlive: true, keepAliveInitialDelay: tcpKeepAliveMs };
  const secure = { ...tls, ...contextOf(tls), ...connect };
  if (proxy) return new ProxyAgent({ ...pool, uri: proxy, requestTls: secure });
  return new Agent({ ...pool, connect: server.protocol === "https:" ? secure : connect });
}

/** TLS context shared by all connections: parsing certificates and key for each of them costs more than the handshake. Absent if they
 *  are invalid; the connection then reports why. */
function contextOf(tls: TlsOptions): { readonly secureContext?: SecureContext } {
  try {
    return { secureContext: createSecureContext(tls) };
  } catch {
    return {};
  }
}

/** Lets requests in progress finish, then closes the connections. */
function retire(dispatcher: Dispatcher, old: Set<Dispatcher>): void {
  trackClosing(dispatcher, dispatcher.close(), old);
}

function discard(dispatcher: Dispatcher, old: Set<Dispatcher>): void {
  const why = new CodedError("unavailable", "the API server does not respond on the open connections");
  trackClosing(dispatcher, dispatcher.destroy(why), old);
}

function trackClosing(dispatcher: Dispatcher, closing: Promise<void>, old: Set<Dispatcher>): void {
  old.add(dispatcher);
  void closing.catch(() => undefined).finally(() => old.delete(dispatcher));
}
