import { type ClientHttp2Stream, constants } from "node:http2";
import type { Clock } from "../lib/clock.ts";
import { abortError, throwIfAborted } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { Credentials } from "./credentials.ts";
import { dialHttp2, type Http2Session, type SessionDeps } from "./http2-session.ts";
import { type RawResponse, type RawRequest, type Requests, unreachable } from "./requests.ts";

/** Opens watches over as few HTTP/2 connections as possible, or one HTTP/1.1 connection each if the server does not support HTTP/2. */
export type WatchSessions = ReturnType<typeof createWatchSessions>;

/** Maximum number of streams per connection, a little below the 100 that API servers allow (older ones allow 250). */
const maxStreams = 90;

/** Ping interval and timeout, milliseconds: a connection that was cut silently is noticed within 20 s. */
const pingIntervalMs = 10_000;
const pingTimeoutMs = 10_000;

/** @param deps.http1 used for watches if the server or a proxy does not support HTTP/2; its connections are renewed when an HTTP/2
 *  connection turns out to be dead. */
export function createWatchSessions(deps: { readonly clock: Clock; readonly http1: Requests }) {
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
    for (const one of sessions) if (one.generation !== credentials.generation) one.destroy();
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

  return {
    /** @throws CodedError unavailable, or the signal's reason. */
    async open(
      credentials: Credentials,
      request: Omit<RawRequest, "method" | "body"> & { readonly signal: AbortSignal },
    ): Promise<RawResponse> {
      throwIfAborted(request.signal);
      try {
        // The dial is shared, so it continues for the other callers if one is cancelled.
        const one = wantsHttp2(credentials) ? await untilAborted(sessionFor(credentials), request.signal) : undefined;
        if (one) return await answerOf(one.open(http2Headers(credentials, request)), request.signal);
      } catch (error) {
        throw unreachable(credentials.server, error, request.signal);
      }
      return http1.stream(credentials, { ...request, method: "GET" });
    },
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

function http2Headers(
  credentials: Credentials,
  { path, headers }: Pick<RawRequest, "path" | "headers">,
): Record<string, string> {
  const { pathname, search } = new URL(path, credentials.server);
  return { ":method": "GET", ":path": pathname + search, ...headers, ...credentials.headers };
}

/** Resolves with the response's headers; the body is the stream, which ends with an error when the signal aborts. */
function answerOf(stream: ClientHttp2Stream, signal: AbortSignal): Promise<RawResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<RawResponse>();
  const onAbort = () => stream.destroy(abortError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  stream.once("close", () => {
    signal.removeEventListener("abort", onAbort);
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
  if (signal.aborted) onAbort();
  return promise;
}
