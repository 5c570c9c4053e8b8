import type { Agent } from "node:http";
import Dockerode from "dockerode";
import type { Clock } from "../../../src/lib/clock.ts";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";
import type { Host } from "../../../src/seams/host.ts";
import { requestJson } from "./response-stream.ts";
import { type EngineVersion, negotiateVersion } from "./api-version.ts";
import { DialAgent } from "./dial-agent.ts";
import { isConnectionReset, codedDockerError } from "./errors.ts";

/** Timeout of a call in milliseconds; `beyondMs` is added to an ordinary call's timeout; `none`: only the signal ends the call (streams,
 *  pulls, waits). */
export type EngineCallTimeout = number | { readonly beyondMs: number } | "none";

/** Client of a Docker daemon. It connects on first use; while the daemon does not respond, calls fail at once with `unavailable`. */
export interface DockerClient {
  /** Runs one API call.
   *  @param work gets dockerode at the negotiated API version and the signal to pass on as `abortSignal`; also, for
   *  streams, an engine with a connection per call, and the same for requests of kubelet API users.
   *  @param limit deadline; an ordinary call's by default.
   *  @throws CodedError with the daemon's message. */
  call<T>(
    work: (engine: Dockerode, abortSignal: AbortSignal, apart: Dockerode, forUser: Dockerode) => Promise<T>,
    signal: AbortSignal,
    limit?: EngineCallTimeout,
  ): Promise<T>;
  /** Sends one request. @returns the response's JSON. @throws CodedError with the daemon's message. */
  request<T>(request: DockerRequest, signal: AbortSignal, limit?: EngineCallTimeout): Promise<T>;
  /** The negotiated API version, such as `1.41`. */
  apiVersion(signal: AbortSignal): Promise<string>;
  /** Time of the daemon's last response, Clock.monotonic(); undefined before the first one, and while a call has been waiting for too long. */
  lastResponseAt(): number | undefined;
  close(): void;
}

/** A request of the Engine API. */
export interface DockerRequest {
  readonly method?: "GET" | "POST" | "DELETE";
  /** Path without API version and query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  /** Request body, which is sent as JSON. */
  readonly body?: object;
}

export interface DockerClientOptions {
  /** Absolute path of the daemon's socket on the target. */
  readonly socket: string;
  readonly host: Pick<Host, "dial" | "forUsers" | "budget">;
  /** Deadline of an ordinary call, milliseconds. */
  readonly requestTimeoutMs: number;
  readonly clock: Clock;
}

/** A call that waits longer than this may be waiting for an unresponsive daemon, milliseconds. */
const slowCallMs = 5_000;

interface NegotiatedEngine {
  readonly version: string;
  readonly engine: Dockerode;
  /** Engine that keeps no connections alive. */
  readonly apart: Dockerode;
  readonly forUser: Dockerode;
}

/** Message of a daemon that rejects the API version of a call: another daemon has replaced the one whose version was negotiated.
 *  @see https://docs.docker.com/reference/api/engine/#versioned-api-and-sdk */
const refusedVersion = /^client version \S+ is too (?:new|old)\b/;

/** Creates the client. The negotiated version is kept until a call finds the daemon unavailable, or the daemon rejects the
 *  version, because it may have been replaced by another version. */
export function createDockerClient({ socket, host, requestTimeoutMs, clock }: DockerClientOptions): DockerClient {
  const agent = new DialAgent({ host, socket, clock, keep: true });
  const agentApart = new DialAgent({ host, socket, clock, keep: false });
  const agentForUsers = new DialAgent({ host: host.forUsers ?? host, socket, clock, keep: false });
  const engineOf = (by: Agent, version?: string) => {
    const options: Dockerode.DockerOptions & { agent: Agent } = { socketPath: socket, agent: by };
    return new Dockerode(version === undefined ? options : { ...options, version: `v${version}` });
  };
  const plain = engineOf(agent);
  let negotiated: NegotiatedEngine | undefined;
  const negotiate = async (signal: AbortSignal): Promise<NegotiatedEngine> => {
    if (negotiated) return negotiated;
    const version = negotiateVersion(
      await sendRequest<EngineVersion>(plain, { path: "/version" }, signal, host.budget),
      socket,
    );
    negotiated = {
      version,
      engine: engineOf(agent, version),
      apart: engineOf(agentApart, version),
      forUser: engineOf(agentForUsers, version),
    };
    return negotiated;
  };
  const responses = createResponseTracker(clock);
  const withDeadline = async <T>(
    work: (signal: AbortSignal) => Promise<T>,
    signal: AbortSignal,
    limit: EngineCallTimeout,
  ) => {
    throwIfAborted(signal);
    const until = limit === "none" ? signal : clock.within(deadlineMs(limit, requestTimeoutMs), signal);
    using waiting = responses.wait(limit);
    try {
      const response = await work(until);
      waiting.answered();
      return response;
    } catch (error) {
      const coded = codedDockerError(error, socket, until);
      if (hasCode(coded, "unavailable") || refusedVersion.test(coded.message)) negotiated = undefined;
      throw coded;
    }
  };
  const call: DockerClient["call"] = (work, signal, limit = requestTimeoutMs) =>
    withDeadline(
      async (until) => {
        const { engine, apart, forUser } = await negotiate(until);
        return work(engine, until, apart, forUser);
      },
      signal,
      limit,
    );
  return {
    call,
    request: (request, signal, limit) =>
      call((engine, until) => sendRequest(engine, request, until, host.budget), signal, limit),
    lastResponseAt: responses.latest,
    apiVersion: (signal) => withDeadline(async (until) => (await negotiate(until)).version, signal, requestTimeoutMs),
    close() {
      agent.destroy();
      agentApart.destroy();
      agentForUsers.destroy();
    },
  };
}

/** Tracks waiting calls and the time of the last response. Calls without a time limit are not counted, as they may wait for
 *  something other than the daemon. */
function createResponseTracker(clock: Clock) {
  const waiting = new Set<{ readonly since: number }>();
  let latest: number | undefined;
  return {
    wait(limit: EngineCallTimeout) {
      const call = { since: clock.monotonic() };
      if (limit !== "none") waiting.add(call);
      return {
        answered: () => void (latest = clock.monotonic()),
        [Symbol.dispose]: () => void waiting.delete(call),
      };
    },
    latest() {
      const longSince = clock.monotonic() - slowCallMs;
      return [...waiting].some(({ since }) => since < longSince) ? undefined : latest;
    },
  };
}

function deadlineMs(limit: Exclude<EngineCallTimeout, "none">, requestTimeoutMs: number): number {
  return typeof limit === "number" ? limit : requestTimeoutMs + limit.beyondMs;
}

/** Sends a request and reads its response. A GET is repeated once if its connection broke: the daemon, or a proxy in front of it,
 *  may have closed an idle one.
 *  @returns the response's JSON. */
async function sendRequest<T>(
  engine: Dockerode,
  request: DockerRequest,
  signal: AbortSignal,
  budget: TargetBudget | undefined,
): Promise<T> {
  const { body, ...options } = request;
  const once = async () =>
    (await requestJson(engine, { ...options, ...(body && { json: body }), signal }, budget)) as T;
  try {
    return await once();
  } catch (error) {
    if ((request.method ?? "GET") !== "GET" || !isConnectionReset(error) || signal.aborted) throw error;
    return once();
  }
}
