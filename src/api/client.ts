import type { Readable } from "node:stream";
import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { Tracer } from "../lib/tracer.ts";
import { ApiError, apiError, watchError } from "./api-error.ts";
import { createCredentials, type CredentialSource } from "./credentials.ts";
import { createHealth, type HealthReader, type HealthWriter } from "./health.ts";
import { jsonLines, parseJson } from "./json-lines.ts";
import type { AccessFile } from "./kubeconfig.ts";
import { createRateLimit, type RateLimit } from "../lib/token-bucket.ts";
import { beginRequest } from "./request-span.ts";
import { createRequests, type RawResponse, type RawRequest, unreachable } from "./requests.ts";
import { createHttp2Sessions, type Http2Sessions } from "./http2-sessions.ts";
import { createWriteThrottle, type WriteThrottle } from "./write-throttle.ts";

/** Metrics of requests to the API server. */
export interface RequestMeasures {
  /** @param code HTTP status, or `<error>` without a response. */
  answered(code: string, method: string, host: string, ms: number): void;
  /** A request was repeated: `code` is the outcome of the repetition. */
  repeated(code: string, method: string, host: string): void;
  /** Size of a request's body (`sent`), or of the response body that the caller gets (`received`). */
  sent(method: string, host: string, bytes: number): void;
  received(method: string, host: string, bytes: number): void;
  /** A request has been delayed by the client's own rate limit. */
  delayed(method: string, host: string, ms: number): void;
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

export interface CallOptions {
  readonly signal: AbortSignal;
  readonly query?: Query;
  /** Called for each request that the call makes; the arguments are those of `RequestMeasures.answered`. */
  readonly answered?: (code: string, ms: number) => void;
}

/** A page of a list. */
export interface ObjectList<T> {
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
  readonly items?: readonly T[] | null;
}

export type Patch =
  | { readonly type: "strategic" | "merge" | "apply"; readonly body: object }
  | { readonly type: "json"; readonly body: readonly object[] };

export interface WatchEvent<T> {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  readonly object: T;
}

/** The API server's REST interface. Paths start with `/api` or `/apis`; objects are in their JSON form. Every method throws ApiError (a
 *  CodedError with the server's own message) if the server refuses, and CodedError unavailable if there is no response.
 *  @see https://kubernetes.io/docs/reference/using-api/api-concepts/ */
export interface ApiClient {
  get<T>(path: string, options: CallOptions): Promise<T>;
  /** Returns a plain text response, for example of a proxied request. */
  text(path: string, options: CallOptions): Promise<string>;
  /** Lists one page of objects; `metadata.continue` leads to the next. */
  list<T>(path: string, options: CallOptions): Promise<ObjectList<T>>;
  create<T>(path: string, body: object, options: CallOptions): Promise<T>;
  update<T>(path: string, body: object, options: CallOptions): Promise<T>;
  patch<T>(path: string, patch: Patch, options: CallOptions): Promise<T>;
  /** @param body DeleteOptions, such as a grace period or preconditions. */
  delete(path: string, body: object | undefined, options: CallOptions): Promise<void>;
  /** Yields events as they arrive. Ends when the server ends the watch; throws when the connection breaks, and for an ERROR
   *  event. */
  watch<T>(path: string, options: CallOptions): AsyncGenerator<WatchEvent<T>, void, undefined>;
  /** Returns the same client with a separate rate limit; if `limit` is undefined, without rate limit and write throttle. */
  limited(limit: RateLimit | undefined): ApiClient;
  readonly health: HealthReader;
}

/** Connections to one API server with the same credentials. */
export interface ApiConnections extends AsyncDisposable {
  /** Creates a client that uses these connections, with its own rate limit. It sends no requests by itself. While the server is
   *  unreachable, each call fails with `unavailable`, and `health` reports it; all clients of the connections have the same `health`. */
  client(options: ApiClientOptions): ApiClient;
}

export interface ApiConnectionsDeps extends ClockAndLog {
  /** Address of the API server, and credentials. */
  readonly access: AccessFile;
}

export interface ApiClientOptions {
  readonly userAgent: string;
  /** KubeletConfiguration.kubeAPIQPS and kubeAPIBurst. */
  readonly qps: number;
  readonly burst: number;
  /** Absent when requests are not counted. */
  readonly measures?: RequestMeasures;
  /** Absent when requests are not traced. */
  readonly tracer?: Tracer;
}

export type ApiClientDeps = ApiConnectionsDeps & ApiClientOptions;

/** Maximum number of retries of a call that the server asks to repeat later; client-go's value. */
const maxRetries = 10;
const maxRetryDelayMs = 60_000;
const patchTypes = {
  strategic: "application/strategic-merge-patch+json",
  merge: "application/merge-patch+json",
  json: "application/json-patch+json",
  // The body is JSON, which is valid YAML.
  apply: "application/apply-patch+yaml",
} as const;

interface ApiClientParts {
  readonly deps: ApiClientOptions & Pick<ClockAndLog, "clock">;
  readonly credentials: CredentialSource;
  readonly sessions: Http2Sessions;
  readonly throttle: WriteThrottle;
  readonly health: { readonly reader: HealthReader; readonly writer: HealthWriter };
}

/** Creates a client for one API server, with connections of its own.
 *  @throws CodedError, one sentence, if the access configuration is unusable. */
export function createApiClient(deps: ApiClientDeps): ApiClient & AsyncDisposable {
  const connections = createApiConnections(deps);
  return { ...connections.client(deps), [Symbol.asyncDispose]: () => connections[Symbol.asyncDispose]() };
}

/** Creates connections that several clients may share. They are opened when they are needed.
 *  @throws CodedError, one sentence, if the access configuration is unusable. */
export function createApiConnections({ access, clock, log }: ApiConnectionsDeps): ApiConnections {
  const requests = createRequests();
  const credentials = createCredentials({ from: access, clock, log });
  const sessions = createHttp2Sessions({ clock, http1: requests });
  const health = createHealth(log);
  return {
    client(options) {
      const deps = { ...options, clock };
      const throttle = createWriteThrottle(clock);
      return clientOf({ deps, credentials, sessions, throttle, health }, createRateLimit(clock, options));
    },
    async [Symbol.asyncDispose]() {
      await sessions[Symbol.asyncDispose]();
      await requests[Symbol.asyncDispose]();
    },
  };
}

function clientOf(parts: ApiClientParts, limit: RateLimit | undefined): ApiClient {
  const send = <T>(call: Call, options: CallOptions) =>
    attempt(parts, limit, { ...call, ...options }, (text) => parsed<T>(text, call));
  const json = "application/json";
  return {
    get: (path, options) => send({ method: "GET", path }, options),
    text: (path, options) => attempt(parts, limit, { method: "GET", path, ...options }, String),
    list: (path, options) => send({ method: "GET", path }, options),
    create: (path, body, options) => send({ method: "POST", path, body, type: json }, options),
    update: (path, body, options) => send({ method: "PUT", path, body, type: json }, options),
    patch: (path, { type, body }, options) => send({ method: "PATCH", path, body, type: patchTypes[type] }, options),
    async delete(path, body, options) {
      await send({ method: "DELETE", path, ...(body && { body, type: json }) }, options);
    },
    watch: (path, options) => watch(parts, limit, { method: "GET", path, ...options }),
    limited: (other) => clientOf(parts, other),
    health: parts.health.reader,
  };
}

interface Call {
  readonly method: RawRequest["method"];
  readonly path: string;
  readonly body?: object;
  readonly type?: string;
}

/** Parses a response. @throws CodedError unavailable for a response that no API server sends, for example one mangled by a
 *  proxy. */
function parsed<T>(text: string, { method, path }: Call): T {
  try {
    return parseJson(text) as T;
  } catch (error) {
    throw new CodedError("unavailable", `the response to ${method} ${path} is not JSON: ${messageOf(error)}`);
  }
}

/** Reads the body of a 2xx response with `read`. Retries when the server requests it with Retry-After, and once with new credentials
 *  after a 401. */
async function attempt<T>(
  parts: ApiClientParts,
  limit: RateLimit | undefined,
  call: Call & CallOptions,
  read: (body: string) => T,
): Promise<T> {
  const { clock } = parts.deps;
  for (let tried = 0, refused = false; ; tried += 1) {
    await untilAllowed(parts, limit, call);
    const held = limit && call.method !== "GET" ? parts.throttle : undefined;
    await held?.wait(call.signal);
    const { answer, countBody } = await reportWrite(once(parts, call, read, tried > 0), held);
    if (!(answer instanceof ApiError)) {
      countBody();
      return answer.read;
    }
    const error = answer;
    if (error.status === 401 && !refused) {
      refused = true;
      parts.credentials.refused();
      continue;
    }
    const wait = error.status === 429 || error.status >= 500 ? error.retryAfterMs : undefined;
    if (wait === undefined || tried >= maxRetries) {
      countBody();
      throw error;
    }
    await clock.sleep(Math.min(wait, maxRetryDelayMs), call.signal);
  }
}

/** Waits for the rate limit, if there is one. */
async function untilAllowed(
  { deps: { clock, measures }, credentials }: ApiClientParts,
  limit: RateLimit | undefined,
  { method, signal }: Call & CallOptions,
): Promise<void> {
  if (!limit) return;
  const since = clock.monotonic();
  await limit.wait(signal);
  const ms = clock.monotonic() - since;
  if (measures) measures.delayed(method, (await untilAborted(credentials.current(), signal)).server.host, ms);
}

/** Reports the outcome of a write to the throttle; cancelled and unsent writes are not reported. */
async function reportWrite<T>(sent: Promise<Outcome<T>>, throttle: WriteThrottle | undefined): Promise<Outcome<T>> {
  try {
    const outcome = await sent;
    const { answer } = outcome;
    throttle?.ended(!(answer instanceof ApiError && (answer.status === 429 || answer.status >= 500)));
    return outcome;
  } catch (error) {
    if (hasCode(error, "unavailable", "deadline_exceeded")) throttle?.ended(false);
    throw error;
  }
}

interface Outcome<T> {
  /** The value that was read, or the server's refusal. */
  readonly answer: { readonly read: T } | ApiError;
  /** Counts the size of the response's body. */
  readonly countBody: () => void;
}

async function once<T>(
  parts: ApiClientParts,
  call: Call & CallOptions,
  read: (body: string) => T,
  isRepeated: boolean,
): Promise<Outcome<T>> {
  const { status, body, retryAfter, countBody } = await exchange(parts, call, isRepeated);
  const answer = status >= 200 && status < 300 ? { read: read(body) } : apiError(status, body, retryAfter);
  return { answer, countBody };
}

async function exchange(
  parts: ApiClientParts,
  call: Call & CallOptions,
  isRepeated: boolean,
): Promise<Pick<RawResponse, "status" | "retryAfter"> & { body: string; countBody: () => void }> {
  const { measures } = parts.deps;
  const credentials = await untilAborted(parts.credentials.current(), call.signal);
  const { host } = credentials.server;
  const count = counter(parts.deps, call, credentials.server, isRepeated);
  const request = { ...rawRequest(parts.deps.userAgent, call), body: call.body && JSON.stringify(call.body) };
  measures?.sent(call.method, host, Buffer.byteLength(request.body ?? ""));
  const span = await beginRequest(parts.deps.tracer, credentials.server, request);
  try {
    const answer = await parts.sessions.send(credentials, withHeaders(request, span.headers));
    span.answered(answer.status);
    const body = await bytesOf(answer.body);
    if (answer.cut?.()) throw new CodedError("unavailable", `${credentials.server.origin}: the connection was lost`);
    span.end();
    parts.health.writer.answered();
    count(answer.status);
    const countBody = () => measures?.received(call.method, host, body.length);
    return { ...answer, body: body.toString("utf8"), countBody };
  } catch (error) {
    count("<error>");
    const lost = unreachable(credentials.server, error, call.signal);
    span.end(lost);
    throw reportLost(parts, lost, call.signal);
  }
}

/** Counts the outcome of one request, once. */
function counter(
  { clock, measures }: ApiClientParts["deps"],
  { method, answered }: Pick<Call & CallOptions, "method" | "answered">,
  { host }: URL,
  isRepeated: boolean,
): (outcome: number | string) => void {
  const since = clock.monotonic();
  let counted = false;
  return (outcome) => {
    if (counted) return;
    counted = true;
    const code = String(outcome);
    const ms = clock.monotonic() - since;
    answered?.(code, ms);
    measures?.answered(code, method, host, ms);
    if (isRepeated) measures?.repeated(code, method, host);
  };
}

async function* watch<T>(
  parts: ApiClientParts,
  limit: RateLimit | undefined,
  call: Call & CallOptions,
): AsyncGenerator<WatchEvent<T>, void, undefined> {
  await untilAllowed(parts, limit, call);
  const query = { ...call.query, watch: true };
  const credentials = await untilAborted(parts.credentials.current(), call.signal);
  const request = { ...rawRequest(parts.deps.userAgent, { ...call, query }), signal: call.signal };
  const count = counter(parts.deps, call, credentials.server, false);
  const span = await beginRequest(parts.deps.tracer, credentials.server, request);
  let answer: RawResponse | undefined;
  try {
    answer = await parts.sessions.watch(credentials, withHeaders(request, span.headers));
    span.answered(answer.status);
    parts.health.writer.answered();
    count(answer.status);
    if (answer.status !== 200) throw await refusal(parts, answer);
    for await (const line of jsonLines(answer.body)) {
      const event = line as { type: WatchEvent<T>["type"] | "ERROR"; object: T };
      if (event.type === "ERROR") throw watchError(event.object as Parameters<typeof watchError>[0]);
      yield { type: event.type, object: event.object };
    }
    if (answer.cut?.()) throw new CodedError("unavailable", `${credentials.server.origin}: the connection was lost`);
  } catch (error) {
    count("<error>");
    const lost = unreachable(credentials.server, error, call.signal);
    span.end(lost);
    throw reportLost(parts, lost, call.signal);
  } finally {
    answer?.body.destroy();
    span.end();
  }
}

async function refusal(parts: ApiClientParts, answer: RawResponse): Promise<ApiError> {
  if (answer.status === 401) parts.credentials.refused();
  return apiError(answer.status, (await bytesOf(answer.body)).toString("utf8"), answer.retryAfter);
}

/** Records that the server is unreachable. Aborted calls do not show that: the loss of the target aborts calls, too. */
function reportLost<E extends Error>(parts: ApiClientParts, error: E, signal: AbortSignal | undefined): E {
  const isLost = !signal?.aborted && !(error instanceof ApiError) && hasCode(error, "unavailable");
  if (isLost) parts.health.writer.failed(error);
  return error;
}

function rawRequest(userAgent: string, { method, path, query, type, signal }: Call & CallOptions): RawRequest {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query ?? {})) if (value !== undefined) search.set(key, String(value));
  const headers = { accept: "application/json", "user-agent": userAgent, ...(type && { "content-type": type }) };
  return { method, path: search.size > 0 ? `${path}?${search.toString()}` : path, headers, signal };
}

function withHeaders<R extends RawRequest>(request: R, headers: RawRequest["headers"]): R {
  return { ...request, headers: { ...request.headers, ...headers } };
}

async function bytesOf(body: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
