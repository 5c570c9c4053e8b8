import { type ClientHttp2Stream, constants } from "node:http2";
import type { Clock } from "../lib/clock.ts";
import { abortError, CodedError, hasCode, throwIfAborted } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { Credentials } from "./credentials.ts";
import { dialHttp2, type Http2Session, type SessionDeps } from "./http2-session.ts";
import { type RawResponse, type RawRequest, type Requests, responseTimeoutMs, unreachable } from "./requests.ts";

/** Sends requests and watches over as few HTTP/2 connections as possible, or over HTTP/1.1 if the server or a proxy does not support
 *  HTTP/2. */
export type Http2Sessions = ReturnType<typeof createHttp2Sessions>;

/** Maximum number of streams per connection, a little below the 100 that API servers allow (older ones allow 250). */
const maxStreams = 90;

/** Number of times that a request is sent again because its connection refused it. */
const maxRefusals = 3;

/** Ping interval and timeout, milliseconds: a connection that was cut silently is noticed within 20 s. */
const pingIntervalMs = 10_000;
const pingTimeoutMs = 10_000;

/** Creates the connections of one client. @param deps.http1 used if the server or a proxy does not support HTTP/2; its connections are
 *  renewed when an HTTP/2 connection turns out to be dead. */
export function createHttp2Sessions(deps: { readonly clock: Clock; readonly http1: Requests }) {
  const { clock, http1 } = deps;
  const onPingTimeout = () => http1.renew();
  const session: SessionDeps = {
    clock,
    maxStreams,
    pingIntervalMs,
    pingTimeoutMs,
    onPingTimeout,
    idleTimeoutMs: 60_000,
    connectTimeoutMs: 10_000,
  };
  let sessions: Http2Session[] = [];
  let dialing: Promise<Http2Session | undefined> | undefined;
  let http1Generation: number | undefined;

  const dial = (credentials: Credentials) => {
    dialing ??= dialHttp2(credentials, session).finally(() => void (dialing = undefined));
    return dialing;
  };
  const sessionFor = async (credentials: Credentials): Promise<Http2Session | undefined> => {
    sessions = sessions.filter((one) => !one.closed);
    for (const one of sessions) if (one.generation !== credentials.generation) one.replace();
    const free = sessions.find((one) => one.hasRoom && one.generation === credentials.generation);
    if (free) return free;
    const made = await dial(credentials);
    if (!made) {
      http1Generation = credentials.generation;
      return undefined;
    }
    if (!sessions.includes(made)) sessions.push(made);
    return made.hasRoom ? made : sessionFor(credentials);
  };
  const wantsHttp2 = ({ server, proxy, generation }: Credentials) =>
    server.protocol === "https:" && !proxy && generation !== http1Generation;
  /** Opens a stream. A server that is closing its connection refuses streams before it has read their requests: they are sent again, over
   *  another connection. @returns undefined if the server speaks only HTTP/1.1. */
  const open = async (credentials: Credentials, request: RawRequest, isWatch: boolean) => {
    for (let refusals = 0; ; refusals += 1) {
      // The dial is shared, so it continues for the other callers if one is cancelled.
      const one = await untilAborted(sessionFor(credentials), request.signal);
      if (!one) return undefined;
      const stream = one.open(http2Headers(credentials, request), { isWatch, hasBody: request.body !== undefined });
      if (!isWatch) limitTime(stream, clock);
      if (request.body !== undefined) stream.end(request.body);
      try {
        return await answerOf(stream, request.signal);
      } catch (error) {
        // The connection may be dead. Its watches stay until a ping shows that.
        if (hasCode(error, "deadline_exceeded")) one.retire();
        const isUnread = stream.rstCode === constants.NGHTTP2_REFUSED_STREAM;
        if (!isUnread || refusals === maxRefusals || request.signal?.aborted) throw error;
        one.retire();
      }
    }
  };
  const answer = async (credentials: Credentials, request: RawRequest, isWatch: boolean): Promise<RawResponse> => {
    throwIfAborted(request.signal);
    try {
      const answered = wantsHttp2(credentials) && (await open(credentials, request, isWatch));
      if (answered) return answered;
    } catch (error) {
      throw unreachable(credentials.server, error, request.signal);
    }
    return isWatch ? http1.stream(credentials, request) : http1.send(credentials, request);
  };

  return {
    /** Sends a request. @throws CodedError unavailable or deadline_exceeded if there is no response, or the signal's reason. */
    send: (credentials: Credentials, request: RawRequest): Promise<RawResponse> => answer(credentials, request, false),
    /** Opens a watch, whose body may be silent for minutes. @throws CodedError unavailable, or the signal's reason. */
    watch: (credentials: Credentials, request: RawRequest): Promise<RawResponse> => answer(credentials, request, true),
    async [Symbol.asyncDispose]() {
      for (const one of sessions) one.destroy();
      // The dial is not awaited, as it hangs while a name does not resolve or a host does not respond.
      void dialing?.then(
        (late) => late?.destroy(),
        () => undefined,
      );
    },
  };
}

/** Ends a response that does not come, or does not end, in time. */
function limitTime(stream: ClientHttp2Stream, clock: Clock): void {
  const timer = clock.deadline(responseTimeoutMs, () =>
    stream.destroy(new CodedError("deadline_exceeded", `no answer within ${responseTimeoutMs} ms`)),
  );
  stream.once("close", () => timer.cancel());
}

function http2Headers(
  credentials: Credentials,
  { method, path, headers }: Pick<RawRequest, "method" | "path" | "headers">,
): Record<string, string> {
  const { pathname, search } = new URL(path, credentials.server);
  return { ":method": method, ":path": pathname + search, ...headers, ...credentials.headers };
}

/** Resolves with the response's headers; the body is the stream, which ends with an error when the signal aborts. */
function answerOf(stream: ClientHttp2Stream, signal: AbortSignal | undefined): Promise<RawResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<RawResponse>();
  const onAbort = () => signal && stream.destroy(abortError(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  stream.once("close", () => {
    signal?.removeEventListener("abort", onAbort);
    reject(new Error("the connection was lost"));
  });
  stream.on("error", reject);
  stream.once("response", (headers) => {
    const retryAfter = headers["retry-after"];
    resolve({
      status: Number(headers[":status"]),
      retryAfter: typeof retryAfter === "string" ? retryAfter : undefined,
      body: stream,
      cut: () => stream.rstCode !== constants.NGHTTP2_NO_ERROR,
    });
  });
  if (signal?.aborted) onAbort();
  return promise;
}
